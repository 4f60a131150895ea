"""Gives rows the identity that publications need, as soon as one is made while relays run.

Until then PostgreSQL refuses to update or delete messages: claims and settles fail and are tried again, heartbeats go
on, and nothing is sent twice.
"""

from __future__ import annotations

import time

import structlog

from relay.database.connection import Database
from relay.database.locks import holders
from relay.statements import statement

log = structlog.get_logger("relay")

LOOK_S = 1.0
SAY_S = 30.0


def set_missing(database: Database) -> None:
    """Give every table the identity that it needs, unless it is locked: for commands, which may run without relays.

    Raises:
        DatabaseUnavailable: try again later.
        RelayError: this role may not.
    """
    while database.query(statement("database/set_identities"), {"back": False})[0][0]:
        pass


class Identities:
    """Raises as `Database.query` does."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._look_at = 0.0
        self._say_at = 0.0

    def keep(self) -> None:
        """Look, if it is time. Waits for two seconds where a table is locked."""
        if time.monotonic() < self._look_at:
            return
        while (done := self._database.query(statement("database/set_identities"), {"back": False})[0][0]) is not None:
            if done:
                log.info("rows have a full identity now, as a publication needs it")
                continue
            if time.monotonic() >= self._say_at:
                self._say_at = time.monotonic() + SAY_S
                log.warning(
                    "messages cannot be claimed or settled: a publication needs another identity of their rows, and the"
                    " table is locked",
                    by=holders(self._database),
                )
            return
        self._look_at = time.monotonic() + LOOK_S
