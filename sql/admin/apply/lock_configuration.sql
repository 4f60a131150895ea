lock table relay.sinks, relay.routes in share row exclusive mode
