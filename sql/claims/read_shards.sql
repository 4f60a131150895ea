-- Read the messages of claimed shards, in each the oldest, as many as fit. Nothing is marked. What fits is worked out on
-- rows without payloads. Neighbours in the heap are in different shards, so a little of each is read with fewer pages
-- than much of one. What came back under an old id lies below the shard's edge, and comes first.
-- Always one is taken; as in claim_rows.sql, it comes alone and without its data where it is too large, where claims died
-- with it, or where the caller asks for it.
with picked as materialized (
  select array_agg(counted.place) as places,
         max(counted.size) filter (where counted.suspects > 0 or counted.bytes > %(bytes)s or %(apart)s) as unread
    from (select found.place, found.bytes as size,
                 row_number() over first_to_this as nth,
                 sum(found.bytes) over first_to_this as bytes,
                 count(*) filter (where found.suspect) over first_to_this as suspects
            from (select o.place, o.id, slice.nth,
                         case when %(apart)s
                              then coalesce(octet_length(o.body), pg_column_size(o.payload))
                                   + coalesce(pg_column_size(o.headers), 0)
                              else coalesce(octet_length(o.body),
                                            case when pg_column_compression(o.payload) is null
                                                 then pg_column_size(o.payload)
                                                 else octet_length(o.payload::text) end)
                                   + coalesce(octet_length(o.headers::text), 0) end
                         + coalesce(octet_length(o.key), 0) as bytes,
                         o.deaths >= 2 as suspect
                    from relay.sinks s
                   cross join unnest(%(shards)s::smallint[], %(edges)s::bigint[]) with ordinality
                         as slice (shard, edge, nth)
                   cross join lateral (
                         (select r.ctid as place, r.id, r.key, r.payload, r.body, r.headers, r.deaths
                            from relay.outbox r
                           where r.sink = %(sink)s and r.shard = slice.shard and r.run_at is null
                             and r.id > slice.edge
                           order by r.id
                           limit %(each)s)
                         union all
                         (select r.ctid as place, r.id, r.key, r.payload, r.body, r.headers, r.deaths
                            from relay.outbox r
                           where r.sink = %(sink)s and r.shard = slice.shard and r.run_at is null
                             and r.due_at is not null and r.id <= slice.edge
                           order by r.id
                           limit %(each)s)
                         order by id
                         limit %(each)s) o
                   where s.name = %(sink)s and s.paused_at is null and not s.resharding
                     and slice.shard < s.shards
                     and slice.shard <> all (array(
                           select unnest(c.shards) from relay.claims c where c.sink = %(sink)s))
                   limit %(messages)s) found
          window first_to_this as (order by found.nth, found.id rows unbounded preceding)) counted
   where counted.nth = 1 or (not %(apart)s and counted.bytes <= %(bytes)s and counted.suspects = 0)
)
select f.ctid, f.id,
       case when (select unread from picked) is null then f.kind end,
       case when (select unread from picked) is null then f.key end,
       case when (select unread from picked) is null then f.payload end,
       case when (select unread from picked) is null then f.body end,
       case when (select unread from picked) is null then f.headers end,
       f.message_id,
       case when f.attempts > 0 then least(f.attempts, 2147483646) + 1 end, f.created_at, f.prior_tokens, f.max_attempts,
       f.deaths, (select unread from picked), f.shard,
       case when f.key is not null and exists (select from relay.stuck_keys k where k.sink = %(sink)s)
            then (select k.upto from relay.stuck_keys k
                   where k.sink = %(sink)s and k.key_hash = relay.hash_of(f.key, null)
                     and k.key = f.key) end,
       f.destination
  from relay.outbox f
 where f.ctid = any((select places from picked)::tid[])
