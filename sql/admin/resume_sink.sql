update relay.sinks set paused_at = null, paused_reason = null where name = %(sink)s
