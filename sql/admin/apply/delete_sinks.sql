delete from relay.sinks where name = any(%(name)s)
