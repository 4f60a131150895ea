"""Redis Streams and Sidekiq, fenced: a batch is one call of one script that refuses a stale sender. Read `stream.py`
first, then `fence.py` with `fence.lua`.
"""
