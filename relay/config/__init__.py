"""From relay.toml and the environment to settings that are checked once and then frozen; every problem is reported at
once, with its origin. `models.py` has every key, but those of one sink type: these are its class's `Options`.
Read `settings.py` first, which makes settings of them.
"""
