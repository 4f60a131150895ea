"""`relay dead`: `list` and `show` (`show.py`), `requeue` and `discard` (`requeue.py`), and how all of them choose messages
(`choosing.py`). Read `show.py` first.
"""

from relay.commands.dead.show import dead

__all__ = ["dead"]
