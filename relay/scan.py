"""Where a claim starts to look, and for how many messages.

While some session holds an old snapshot, nothing that left the queue can be cleaned from its index, and a scan from
the left edge wades through all of it. So a worker goes on after the last id that it claimed. Ids commit out of
order and messages come back, so this is a hint only: at times it looks through everything, more rarely the dearer the
last such look was.
"""

from __future__ import annotations

import time

from relay.store import Claim

FULL_SCAN_SHARE = 0.05
"""Part of the time that full scans may take."""


class Scan:
    """One worker's scan state.

    Args:
        messages: most messages a claim.
        size: most bytes a claim.
    """

    def __init__(self, messages: int, size: int) -> None:
        self._messages = messages
        self._size = size
        self._after = 0
        self._highest = 0
        self._full_at = 0.0
        self._started = 0.0
        self.limit = messages
        """How many rows are worth locking: fewer while messages are so big that bytes decide."""

    def start(self) -> int:
        """The id after which to look; 0 = everywhere."""
        self._started = time.monotonic()
        if self._started >= self._full_at:
            self._full_at = 0.0
            return 0
        return self._after

    def found(self, claim: Claim | None) -> None:
        """Take note of what the scan found."""
        now = time.monotonic()
        if self._full_at == 0.0:
            self._full_at = now + (now - self._started) * (1 / FULL_SCAN_SHARE - 1)
        if claim is None:
            # Nothing lies after the hint, wherever it stood.
            self._after = self._highest
            return
        self._after = claim.messages[-1].id
        self._highest = max(self._highest, self._after)
        by_bytes = claim.size * 2 > self._size
        self.limit = min(self._messages, 2 * len(claim.messages)) if by_bytes else self._messages
