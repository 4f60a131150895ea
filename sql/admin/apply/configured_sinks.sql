select name, shards, max_attempts, hand_over, strict from relay.sinks
