-- The claim statement looks at paused_at. Pausing a paused sink changes the reason, not the time.
update relay.sinks
   set paused_at = coalesce(paused_at, clock_timestamp()), paused_reason = %(reason)s
 where name = %(sink)s
