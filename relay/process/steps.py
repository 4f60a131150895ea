"""The database's part of a claim loop: each step until it is taken, and what is said while it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import structlog

from relay.backoff import Backoff
from relay.claims.claim import LostClaim
from relay.errors import RelayError
from relay.process.stopping import Stopping

log = structlog.get_logger("relay")

T = TypeVar("T")


class Steps:
    """Those of one worker.

    Args:
        sink: whose worker, for the log.
    """

    def __init__(self, sink: str, stopping: Stopping) -> None:
        self.trouble: str | None = None
        """What the database refused last; None while it works."""
        self._sink = sink
        self._stopping = stopping
        self._backoff = Backoff(0.1, 5.0)

    def take(self, work: Callable[[], T], step: str) -> T:
        """Do something once. Raises what it raises, and says so."""
        try:
            result = work()
        except RelayError as error:
            if self.trouble != str(error):
                self.trouble = str(error)
                log.error("database refused", sink=self._sink, step=step, reason=self.trouble)
            raise
        if self.trouble is not None:
            log.info("database works again", sink=self._sink)
            self.trouble = None
        self._backoff.reset()
        return result

    def insist(self, write: Callable[[], None]) -> bool:
        """Write until the database takes it, or until the process has to go; False where the claim is not ours."""
        while True:
            try:
                self.take(write, "settle")
            except LostClaim:
                return False
            except RelayError:
                if self._stopping.wait_at_once(self.wait()):
                    return False
            else:
                return True

    def wait(self) -> float:
        """Seconds until another try makes sense."""
        return self._backoff.next()
