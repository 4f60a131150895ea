"""Routes messages again that were written before their route was there, and committed after `relay apply` had looked.

Every relay goes through the messages without a route, a part every ten seconds, from the beginning again and again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

import structlog
from psycopg import Connection

from relay.database.connection import Database
from relay.database.locks import in_pieces
from relay.statements import statement

log = structlog.get_logger("relay")

LOOK_S = 10.0
SEARCH_S = 0.5
MESSAGES = 1000
"""So many at a time: there may be millions that no route matches."""


class LateRoutes:
    """Raises as `Database.query` does."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._after = 0
        self._look_at = 0.0

    def route(self) -> int:
        """Look at some, if it is time; returns how many have a route now."""
        if time.monotonic() < self._look_at:
            return 0
        looked = {"after": self._after, "messages": MESSAGES}
        rows = self._database.query(statement("process/unrouted_part"), looked)
        self._after = rows[-1][1] if len(rows) == MESSAGES else 0
        self._look_at = time.monotonic() + LOOK_S * random.uniform(0.8, 1.2)
        routed = route_again(
            self._database, [(place, deduped) for place, _, deduped, matches in rows if matches], seconds=SEARCH_S
        )
        if routed:
            log.info("messages have a route now", count=routed)
        return routed


def route_again(database: Database, rows: Sequence[tuple[Any, ...]], *, seconds: float) -> int:
    """Write messages anew that have a route by now; returns how many.

    One whose dedupe_key an open transaction writes too stays as it is: whoever waited for that would make others wait.

    Args:
        rows: place of each message, and whether it has a dedupe_key.
        seconds: how long the search for those may take.
    """
    # Those without dedupe_key first: whoever holds others' keys must not hold these up.
    parts = [[place for place, deduped in rows if deduped is with_key] for with_key in (False, True)]
    return sum(count for part in parts for count in in_pieces(database, _write_anew, part, seconds=seconds))


def _write_anew(conn: Connection[Any], places: list[str]) -> int:
    row = conn.execute(statement("admin/apply/reroute"), {"places": places}).fetchone()
    return int(row[0]) if row else 0
