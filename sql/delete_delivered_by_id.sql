-- For rows that were moved while they were claimed: VACUUM FULL, CLUSTER, an update by hand.
delete from relay.outbox
 where sink = %(sink)s and shard = any(%(shards)s) and run_at is null
   and id = any(%(ids)s) and claim_token is not distinct from %(mark)s
