"""Work that needs strong locks, without making the application wait for it.

Whoever waits for a strong lock makes everybody queue behind it. So such work waits two seconds at most, lets go, and
tries again a little later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from psycopg import errors as pg
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_delay, wait_random

from relay.database.connection import Database
from relay.errors import RelayError
from relay.statements import statement

PATIENCE_S = 60.0
"""How long in all."""

Say = Callable[[str], None]
T = TypeVar("T")


def with_patience(work: Callable[[], T], database: Database, say: Say, patience: float = PATIENCE_S) -> T:
    """What `work` returns, once it got its locks.

    Args:
        work: a transaction over `database`, all or nothing, with a `lock_timeout` of its own.
        say: told what it waits for.
        patience: seconds until it gives up.

    Raises:
        RelayError: it gave up; says who holds the locks.
    """

    def waiting(_: RetryCallState) -> None:
        say(f"waiting for locks, held by: {holders(database)}")

    retrying = Retrying(
        retry=retry_if_exception(_met_a_lock),
        wait=wait_random(0.05, 0.5),
        stop=stop_after_delay(patience),
        before_sleep=waiting,
        reraise=True,
    )
    try:
        return retrying(work)
    except RelayError as error:
        if not _met_a_lock(error):
            raise
        raise RelayError(
            f"no lock within {patience:g} s, nothing was changed. Locks are held by: {holders(database)}. "
            "End these sessions, or try again when they are done"
        ) from error


def holders(database: Database) -> str:
    """The sessions that hold locks on the schema, in words."""
    rows = database.query(statement("database/lock_holders"))
    return ", ".join(f"process {pid} ({name}, {state})" for pid, name, state in rows) or "nobody any more"


def _met_a_lock(error: BaseException) -> bool:
    return isinstance(error.__cause__, pg.LockNotAvailable | pg.DeadlockDetected)
