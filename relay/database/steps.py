"""The database's part of a claim loop: each step until it is taken, and what is said while it is not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import structlog

from relay.backoff import Backoff
from relay.errors import DatabaseTooSlow, DatabaseUnavailable, RelayError

log = structlog.get_logger("relay")

T = TypeVar("T")

SAY_EVERY_S = 60.0
"""What the database refuses is said again after so long."""


class NotRead(NamedTuple):
    """A message whose data could not be read."""

    reason: str
    guilty: bool
    """Whether it is the message's own fault."""
    wait: float
    """Seconds until another try makes sense."""


class Steps:
    """Those of one worker.

    Args:
        sink: whose worker, for the log.
        wait: waits so many seconds; True where the process has to go.
        unsettled: called with the reason while a claim cannot be settled, and with None once that is over.
    """

    def __init__(
        self, sink: str, wait: Callable[[float], bool], unsettled: Callable[[str | None], None] = lambda reason: None
    ) -> None:
        self.trouble: str | None = None
        """What the database refused last; None while it works."""
        self._sink = sink
        self._wait = wait
        self._unsettled = unsettled
        self._say_at = 0.0
        self._backoff = Backoff(0.1, 5.0)
        self._read_backoff = Backoff(0.1, 5.0)
        self._not_read: int | None = None
        """The message that could not be read the last time."""

    def take(self, work: Callable[[], T], step: str) -> T:
        """Do something once. Raises what it raises, and says so."""
        try:
            result = work()
        except RelayError as error:
            if self.trouble != str(error) or time.monotonic() >= self._say_at:
                self.trouble = str(error)
                self._say_at = time.monotonic() + SAY_EVERY_S
                log.error("database refused", sink=self._sink, step=step, reason=self.trouble)
            raise
        if self.trouble is not None:
            log.info("database works again", sink=self._sink)
            self.trouble = None
        self._backoff.reset()
        return result

    def insist(self, write: Callable[[], None], *, lost: type[Exception]) -> bool:
        """Write until the database takes it, or until the process has to go; False then, and where `lost` is raised."""
        try:
            while True:
                try:
                    self.take(write, "settle")
                except lost:
                    return False
                except RelayError as error:
                    self._unsettled(str(error))
                    if self._wait(self.wait()):
                        return False
                else:
                    return True
        finally:
            self._unsettled(None)

    def read(self, message: int, read: Callable[[], None]) -> NotRead | None:
        """Read a message's data; None: that is done.

        Where it takes too long, or fails again while the database answers otherwise, the message is to blame: it must
        run out of attempts.
        """
        try:
            read()
        except DatabaseUnavailable as error:
            guilty = isinstance(error, DatabaseTooSlow) or message == self._not_read
            self._not_read = message
            return NotRead(f"it could not be read from the database: {error}", guilty, self._read_backoff.next())
        self._not_read = None
        self._read_backoff.reset()
        return None

    def wait(self) -> float:
        """Seconds until another try makes sense."""
        return self._backoff.next()
