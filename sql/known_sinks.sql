select name, shards, max_attempts from relay.sinks
