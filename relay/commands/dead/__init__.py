"""`relay dead`: `list` and `show` in `show.py`, which to read first; `requeue` and `discard` in `requeue.py`; the options
by which all of them choose messages in `choosing.py`.
"""

from relay.commands.dead.show import dead

__all__ = ["dead"]
