-- Claim locked shards. Who else claims one of them holds its lock until that can be seen, and this statement's snapshot is
-- younger than our lock: so what no claim has by now, is ours. Their messages are read by the next statement: its snapshot
-- must be younger than the claim, or it would see again what the last owner has just delivered.
insert into relay.claims (token, sink, shards, counts, worker, claimed_at, locked_until, ids)
select %(token)s, %(sink)s, free.shards, '{}', %(worker)s, statement_timestamp(),
       statement_timestamp() + make_interval(secs => %(lease)s), '{}'
  from (select array_agg(locked.shard) as shards
          from unnest(%(locked)s::smallint[]) as locked (shard)
         where locked.shard <> all (array(select unnest(c.shards) from relay.claims c where c.sink = %(sink)s))
           and exists (select from relay.sinks s
                        where s.name = %(sink)s and s.paused_at is null and not s.resharding)) free
 where free.shards is not null
returning shards
