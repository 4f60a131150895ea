-- Messages in shards that do not exist: moved there by hand, or left by a release that changed shards otherwise.
select format('sink "%s" has messages in shards that do not exist, which nobody claims: relay reshard %s %s',
              s.name, s.name, s.shards)
  from relay.sinks s
 where not s.resharding
   and exists (select from relay.outbox o
                where o.sink = s.name and o.run_at is null and o.shard >= greatest(s.shards, 1))
 order by s.name
