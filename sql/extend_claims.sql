-- Heartbeat: whatever does not come back is lost.
update relay.claims
   set locked_until = clock_timestamp() + make_interval(secs => %(lease)s)
 where token = any(%(tokens)s)
returning token
