"""The crash test: relays are killed and frozen, connections cut, and at the end everything is counted.

`python -m tests.crash --kills 200`, or `make crash KILLS=200`.
"""
