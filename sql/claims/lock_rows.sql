-- Where messages of a claim are, wherever somebody may have moved them, and hold them there: by the ids alone the planner
-- would read all of a shard once statistics are stale. Messages of claimed shards are not marked (mark is null).
select found.place
  from unnest(%(shards)s::smallint[], %(ids)s::bigint[]) as wanted (shard, id)
 cross join lateral (
       select o.ctid as place
         from relay.outbox o
        where o.sink = %(sink)s and o.shard = wanted.shard and o.run_at is null and o.id = wanted.id
          and o.claim_token is not distinct from %(mark)s
        limit 1
          for update) found
