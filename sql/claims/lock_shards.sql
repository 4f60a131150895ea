-- Lock shards until the transaction ends. Whoever is busy claiming one is passed by, so that nobody waits in a circle. And
-- which server does so.
select shard, pg_try_advisory_xact_lock(hashtext('relay shard of ' || %(sink)s), shard), statement_timestamp(),
       pg_postmaster_start_time()
  from unnest(%(shards)s::integer[]) as shard
