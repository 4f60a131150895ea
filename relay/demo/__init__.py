"""`relay demo`: the main job, on servers of its own, counted at the end from what the brokers really hold."""
