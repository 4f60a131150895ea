"""From relay.toml and the environment to settings that are checked once and then frozen; every problem is reported at
once, with its origin. `settings.py` has every key and its checks, but those of one sink type: these are its class's
`Options`. Read it first.
"""
