"""The relay as a process: a loop of claim, send and settle for each worker of each sink, and the threads beside it
that keep leases, promote, reap and listen. Read `service.py` first, then `engine.py`.
"""
