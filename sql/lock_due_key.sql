select sink, shard, key from relay.stuck_keys
 where retry_at <= now()
 order by retry_at
 limit 1
   for update skip locked
