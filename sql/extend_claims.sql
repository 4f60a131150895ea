-- Heartbeat: whatever does not come back is lost. A claim of shards comes back once for each.
update relay.claims
   set locked_until = statement_timestamp() + make_interval(secs => %(lease)s)
 where token = any(%(tokens)s)
returning token
