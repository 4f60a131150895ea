"""Work that needs strong locks, without making the application wait for it.

Whoever waits for a strong lock makes everybody queue behind it. So such work waits a fifth of a second at most, lets
go, and tries again seconds later: writers lose a tenth of their time at most.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

from psycopg import Connection
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
R = TypeVar("R")


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


def in_pieces(
    database: Database, work: Callable[[Connection[Any], list[T]], R], rows: list[T], *, seconds: float
) -> list[R]:
    """Do what must not wait for a stranger's transaction, such as one that writes the same dedupe_key and stays open.

    A piece that meets a lock is halved, and a row that meets one is left out. Each piece is a transaction.

    Args:
        work: what is done with some of the rows.
        seconds: how long the search for rows in the way may take; what is not done by then is left out.

    Returns:
        What `work` returned, for each piece that was done.
    """
    done: list[R] = []
    pieces = [rows] if rows else []
    give_up_at = time.monotonic() + seconds
    while pieces:
        piece = pieces.pop()
        try:
            with database.transaction() as conn:
                conn.execute(statement("database/locks/brief"))
                done.append(work(conn, piece))
        except RelayError as error:
            if not _met_a_lock(error):
                raise
            if time.monotonic() > give_up_at:
                break
            if len(piece) > 1:
                half = len(piece) // 2
                pieces += [piece[half:], piece[:half]]
    return done


def pause_after(tried: float) -> float:
    """Seconds to leave the application alone after a try that took so many."""
    return max(PAUSE_S, tried / SHARE) * random.uniform(1.0, 1.25)


def holders(database: Database) -> str:
    """The sessions that hold locks on the schema, in words."""
    rows = database.query(statement("database/locks/holders"))
    return ", ".join(f"process {pid} ({name}, {state})" for pid, name, state in rows) or "nobody any more"


def _met_a_lock(error: BaseException) -> bool:
    return isinstance(error.__cause__, pg.LockNotAvailable | pg.DeadlockDetected)
