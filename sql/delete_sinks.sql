delete from relay.sinks where name = any(%(names)s)
