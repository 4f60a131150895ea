-- Claim free shards with ready messages, those with the oldest first. Whoever is busy claiming a shard is passed by, so
-- that nobody waits in a circle. Their messages are read by the next statement: its snapshot must be younger than the
-- claim, or it would see again what the last owner has just delivered. All shards of a claim run out at once.
insert into relay.claims (token, sink, shard, worker, claimed_at, locked_until, ids)
select %(token)s, %(sink)s, oldest.shard, %(worker)s, statement_timestamp(),
       statement_timestamp() + make_interval(secs => %(lease)s), '{}'
  from (select slice.shard, first.id
          from relay.sinks s
         cross join generate_series(0, s.shards - 1) as slice (shard)
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
         where s.name = %(sink)s and s.paused_at is null and not s.resharding
           and not exists (select from relay.claims c where c.sink = %(sink)s and c.shard = slice.shard)
         order by first.id) oldest
 where pg_try_advisory_xact_lock(hashtext('relay shard of ' || %(sink)s), oldest.shard)
 limit %(shards)s
on conflict (sink, shard) do nothing
returning shard
