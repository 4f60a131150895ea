select name, shards, max_attempts, hand_over from relay.sinks
