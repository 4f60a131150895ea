"""Routes messages again that were written before their route was there, and committed after `relay apply` had looked.

Every relay goes through the messages without a route, a part every ten seconds, from the beginning again and again.
"""

from __future__ import annotations

import random
import time

import structlog

from relay.database.connection import Database
from relay.statements import statement

log = structlog.get_logger("relay")

LOOK_S = 10.0
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
        places = [place for place, _, matches in rows if matches]
        routed = int(self._database.query(statement("admin/apply/reroute"), {"places": places})[0][0]) if places else 0
        if routed:
            log.info("messages have a route now", count=routed)
        return routed
