-- Let parked messages go. They keep the destination's name: a relay does not hold them back, and their outcome is that of
-- the probe.
update relay.outbox
   set run_at = null, due_at = coalesce(due_at, created_at)
 where ctid = any(%(places)s)
