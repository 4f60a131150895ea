"""Which claims this process holds, and whether they are still its own.

A claim is lost when the database says so, or when nobody could ask it for a whole lease: by then another
relay may have it. Either way its owner stops sending. Whether a settle is still allowed only the database decides.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from relay.claims.claim import Claim


class Lease:
    """One claim's lease, counted on this process's own monotonic clock."""

    def __init__(self, claim: Claim, seconds: float, asked_at: float) -> None:
        self.claim = claim
        self.seconds = seconds
        self._valid_until = asked_at + seconds
        self._lost = False

    def renewed(self, asked_at: float) -> None:
        """Count from when the question was asked: the answer may have been under way for long."""
        self._valid_until = asked_at + self.seconds

    def lose(self) -> None:
        self._lost = True

    def lost(self) -> bool:
        """Whether it is lost. Once said it stays so, whatever a late heartbeat says: a sink has stopped half way."""
        self._lost = self._lost or time.monotonic() > self._valid_until
        return self._lost


class Leases:
    """The leases of this process, by token. Used by every thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[UUID, Lease] = {}

    @contextmanager
    def holding(self, claim: Claim, seconds: float, asked_at: float) -> Iterator[Lease]:
        """Keep a claim alive inside the block.

        Args:
            seconds: length of the lease.
            asked_at: `time.monotonic()` from before the claim was asked for.
        """
        lease = Lease(claim, seconds, asked_at)
        with self._lock:
            self._held[claim.token] = lease
        try:
            yield lease
        finally:
            with self._lock:
                del self._held[claim.token]

    def held(self) -> list[Lease]:
        with self._lock:
            return list(self._held.values())
