"""How many messages a claim of single rows looks at, and where it starts.

While some session holds an old snapshot, nothing that left the queue can be cleaned from its index, and a scan from
the left edge wades through all of it. So a worker goes on after the last id that it claimed. Ids commit out of
order and messages come back, so this is a hint only: at times it looks through everything, more rarely the dearer the
last such look was. Where order is promised a hint is not enough: see `Edge`.
"""

from __future__ import annotations

import time

FULL_SCAN_SHARE = 0.05
"""Part of the time that full scans may take."""


class Appetite:
    """How many rows are worth locking or reading: fewer while messages are so big that bytes decide.

    Args:
        messages: most messages a claim.
        size: most bytes a claim.
    """

    def __init__(self, messages: int, size: int) -> None:
        self._messages = messages
        self._size = size
        self.limit = messages

    def took(self, messages: int, size: int) -> None:
        """A claim found so many messages of so many bytes."""
        if messages:
            by_bytes = size * 2 > self._size
            self.limit = min(self._messages, 2 * messages) if by_bytes else self._messages


class Scan:
    """One worker's scan state."""

    def __init__(self) -> None:
        self._after = 0
        self._highest = 0
        self._full_at = 0.0
        self._full = False
        self._started = 0.0

    def start(self) -> int:
        """The id after which to look; 0 = everywhere."""
        self._started = time.monotonic()
        self._full = self._started >= self._full_at
        return 0 if self._full else self._after

    def found(self, last: int | None) -> None:
        """Take note of the last id that the scan found; None: nothing."""
        if self._full:
            now = time.monotonic()
            self._full_at = now + (now - self._started) * (1 / FULL_SCAN_SHARE - 1)
        if last is None:
            # Nothing lies after the hint, wherever it stood.
            self._after = self._highest
        else:
            self._after = last
            self._highest = max(self._highest, last)

    def go_back(self, message_id: int) -> None:
        """This message is ready again."""
        self._after = min(self._after, message_id - 1)
