select kind, sink, lo, hi, shadow from relay.routes
