-- Choose free shards with ready messages, those with the oldest first, and lock as many as are wanted until the transaction
-- ends; also tell which come next. Whoever is busy claiming a shard is passed by, so that nobody waits in a circle.
select oldest.shard, statement_timestamp(),
       oldest.nth <= %(wanted)s and pg_try_advisory_xact_lock(hashtext('relay shard of ' || %(sink)s), oldest.shard)
  from (select slice.shard, row_number() over (order by first.id) as nth
          from relay.sinks s
         cross join lateral unnest(coalesce(%(among)s::integer[], array(select generate_series(0, s.shards - 1))))
               as slice (shard)
         cross join lateral (
               (select o.id from relay.outbox o
                 where o.sink = %(sink)s and o.shard = slice.shard and o.run_at is null
                   and o.id > coalesce((%(edges)s::bigint[])[slice.shard + 1], 0)
                 order by o.id
                 limit 1)
               union all
               (select o.id from relay.outbox o
                 where o.sink = %(sink)s and o.shard = slice.shard and o.run_at is null and o.due_at is not null
                   and o.id <= (%(edges)s::bigint[])[slice.shard + 1]
                   and (select exists (select from relay.outbox r
                                        where r.sink = %(sink)s and r.run_at is null and r.due_at is not null))
                 order by o.id
                 limit 1)
               order by id
               limit 1) first
         where s.name = %(sink)s and s.paused_at is null and not s.resharding and slice.shard < s.shards
           and slice.shard <> all (array(select unnest(c.shards) from relay.claims c where c.sink = %(sink)s))) oldest
 order by oldest.nth
