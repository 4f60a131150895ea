-- Read the messages of claimed shards, in each the oldest, as many as fit. Nothing is marked. What fits is worked out on
-- rows without payloads. Neighbours in the heap are in different shards, so a little of each is read with fewer pages
-- than much of one. A message that two claims died with is taken alone.
select f.ctid, f.id, f.kind, f.key, f.payload, f.body, f.headers, f.message_id,
       least(f.attempts, 2147483646) + 1, f.created_at, f.prior_tokens, f.max_attempts, clock_timestamp(), f.shard,
       exists (select from relay.stuck_keys k where k.sink = %(sink)s)
  from relay.outbox f
 where f.ctid = any(array(
         select counted.place
           from (select found.place,
                        row_number() over first_to_this as nth,
                        sum(found.bytes) over first_to_this as bytes,
                        count(*) filter (where found.suspect) over first_to_this as suspects
                   from (select o.*
                           from unnest(%(shards)s::smallint[], %(afters)s::bigint[]) with ordinality
                                as slice (shard, after, nth)
                          cross join lateral (
                                select r.ctid as place, r.id, slice.nth,
                                       coalesce(octet_length(r.body),
                                                case when pg_column_compression(r.payload) is null
                                                     then pg_column_size(r.payload)
                                                     else octet_length(r.payload::text) end) as bytes,
                                       cardinality(r.prior_tokens) >= 2 as suspect
                                  from relay.outbox r
                                 where r.sink = %(sink)s and r.shard = slice.shard and r.run_at is null
                                   and r.id > slice.after
                                 order by r.id
                                 limit %(each)s) o
                          limit %(messages)s) found
                 window first_to_this as (order by found.nth, found.id rows unbounded preceding)) counted
          where counted.nth = 1 or (counted.bytes <= %(bytes)s and counted.suspects = 0)))
