-- Lock shards until the transaction ends. Whoever is busy claiming one is passed by, so that nobody waits in a circle.
select shard, pg_try_advisory_xact_lock(hashtext('relay shard of ' || %(sink)s), shard), statement_timestamp()
  from unnest(%(shards)s::integer[]) as shard
