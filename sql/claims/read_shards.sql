-- Read the messages of claimed shards, in each the oldest, as many as fit. Nothing is marked. What fits is worked out on
-- rows without payloads. Neighbours in the heap are in different shards, so a little of each is read with fewer pages
-- than much of one. A message that two claims died with is taken alone. What came back under an old id lies below the
-- shard's edge, and comes first.
select f.ctid, f.id, f.kind, f.key, f.payload, f.body, f.headers, f.message_id,
       case when f.attempts > 0 then least(f.attempts, 2147483646) + 1 end, f.created_at, f.prior_tokens, f.max_attempts,
       f.shard,
       case when f.key is not null and exists (select from relay.stuck_keys k where k.sink = %(sink)s)
            then (select k.upto from relay.stuck_keys k
                   where k.sink = %(sink)s and k.key_hash = relay.hash_of(f.key, null)) end,
       f.destination
  from relay.outbox f
 where f.ctid = any(array(
         select counted.place
           from (select found.place,
                        row_number() over first_to_this as nth,
                        sum(found.bytes) over first_to_this as bytes,
                        count(*) filter (where found.suspect) over first_to_this as suspects
                   from (select o.place, o.id, slice.nth,
                                coalesce(octet_length(o.body),
                                         case when pg_column_compression(o.payload) is null
                                              then pg_column_size(o.payload)
                                              else octet_length(o.payload::text) end)
                                + case when o.headers is null then 0
                                       when pg_column_compression(o.headers) is null then pg_column_size(o.headers)
                                       else octet_length(o.headers::text) end as bytes,
                                cardinality(o.prior_tokens) >= 2 as suspect
                           from relay.sinks s
                          cross join unnest(%(shards)s::smallint[], %(edges)s::bigint[]) with ordinality
                                as slice (shard, edge, nth)
                          cross join lateral (
                                (select r.ctid as place, r.id, r.payload, r.body, r.headers, r.prior_tokens
                                   from relay.outbox r
                                  where r.sink = %(sink)s and r.shard = slice.shard and r.run_at is null
                                    and r.id > slice.edge
                                  order by r.id
                                  limit %(each)s)
                                union all
                                (select r.ctid as place, r.id, r.payload, r.body, r.headers, r.prior_tokens
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
          where counted.nth = 1 or (counted.bytes <= %(bytes)s and counted.suspects = 0)))
