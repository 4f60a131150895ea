-- Claim free shards with ready messages, those with the oldest first. Whoever is busy claiming a shard is passed by, so
-- that nobody waits in a circle. Their messages are read by the next statement: its snapshot must be younger than the
-- claim, or it would see again what the last owner has just delivered.
insert into relay.claims (token, sink, shard, worker, claimed_at, locked_until, ids)
select %(token)s, %(sink)s, oldest.shard, %(worker)s, clock_timestamp(),
       clock_timestamp() + make_interval(secs => %(lease)s), '{}'
  from (select slice.nth - 1 as shard, first.id
          from unnest(%(afters)s::bigint[]) with ordinality as slice (after, nth)
         cross join lateral (select o.id from relay.outbox o
                              where o.sink = %(sink)s and o.shard = slice.nth - 1 and o.run_at is null
                                and o.id > slice.after
                              order by o.id
                              limit 1) first
         where not exists (select from relay.claims c where c.sink = %(sink)s and c.shard = slice.nth - 1)
           and (select s.paused_at is null from relay.sinks s where s.name = %(sink)s)
         order by first.id
         limit %(shards)s) oldest
 where pg_try_advisory_xact_lock(hashtext('relay shard of ' || %(sink)s), oldest.shard::integer)
on conflict (sink, shard) do nothing
returning shard
