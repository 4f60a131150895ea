"""`relay dead`: `list` and `show` (`show.py`, read it first), `requeue` and `discard` (`requeue.py`), and the options
by which all of them choose messages (`choosing.py`).
"""

from relay.commands.dead.show import dead

__all__ = ["dead"]
