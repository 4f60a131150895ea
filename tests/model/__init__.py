"""The randomized checker of the whole product: `python -m tests.model --seeds 20 --seconds 60`, or `make model`.

A seed decides a small world (a database's defaults, sinks, relays and their settings) and everything that happens to
it: who writes what, which faults come when, which commands an operator runs meanwhile. Then all is healed, and what
the brokers hold is compared with what was committed. Read `plan.py` first, then `run.py` and `check.py`.
"""
