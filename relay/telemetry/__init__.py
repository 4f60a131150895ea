"""What others see of a relay: what it counts, where that is served, and what a log line looks like. Read `metrics.py`
first.
"""
