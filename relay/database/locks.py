"""Work that needs strong locks, without making the application wait for it.

Whoever waits for a strong lock makes everybody queue behind it. So such work waits a fifth of a second at most, lets
go, and tries again seconds later: writers lose a tenth of their time at most.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from psycopg import errors as pg

from relay.database.connection import Database
from relay.errors import RelayError
from relay.statements import statement

PATIENCE_S = 60.0
"""How long in all."""
PAUSE_S = 2.0
"""At least so long between two tries."""
SHARE = 0.1
"""Part of the time that tries may take: one that got some of its locks before it failed took longer."""

Say = Callable[[str], None]
T = TypeVar("T")


def with_patience(work: Callable[[], T], database: Database, say: Say, patience: float = PATIENCE_S) -> T:
    """What `work` returns, once it got its locks.

    Args:
        work: a transaction over `database`, all or nothing, with a `lock_timeout` of its own: 200 ms.
        say: told what it waits for.
        patience: seconds until it gives up.

    Raises:
        RelayError: it gave up; says who holds the locks.
    """
    give_up_at = time.monotonic() + patience
    while True:
        started = time.monotonic()
        try:
            return work()
        except RelayError as error:
            if not _met_a_lock(error):
                raise
            pause = pause_after(time.monotonic() - started)
            held_by = holders(database)
            if time.monotonic() + pause > give_up_at:
                raise RelayError(
                    f"no lock within {patience:g} s, nothing was changed. Locks are held by: {held_by}. "
                    "End these sessions, or try again when they are done"
                ) from error
        say(f"waiting for locks, held by: {held_by}")
        time.sleep(pause)


def pause_after(tried: float) -> float:
    """Seconds to leave the application alone after a try that took so many."""
    return max(PAUSE_S, tried / SHARE) * random.uniform(1.0, 1.25)


def holders(database: Database) -> str:
    """The sessions that hold locks on the schema, in words."""
    rows = database.query(statement("database/lock_holders"))
    return ", ".join(f"process {pid} ({name}, {state})" for pid, name, state in rows) or "nobody any more"


def _met_a_lock(error: BaseException) -> bool:
    return isinstance(error.__cause__, pg.LockNotAvailable | pg.DeadlockDetected)
