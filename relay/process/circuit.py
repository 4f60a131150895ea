"""What a sink's trouble does to its senders.

closed ──failed──▶ open ──after a while──▶ probing, one sender with few messages ──worked──▶ ramping ──▶ closed

A broker that is down is not a message's fault, so nothing is sent at full size until a probe came back, and a
broker that comes back is not run over: what may be claimed doubles with each success.
"""

from __future__ import annotations

import threading
import time

from relay.backoff import Backoff

PROBE_MESSAGES = 10
FIRST_PROBE_S = 0.25
LONGEST_PROBE_S = 4.0
"""A broker that is back is noticed within this time."""


class Circuit:
    """One sink's circuit, shared by its senders in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._backoff = Backoff(FIRST_PROBE_S, LONGEST_PROBE_S)
        self._reason: str | None = None
        self._probe_at = 0.0
        self._prober: object | None = None
        self._limit: int | None = None

    @property
    def reason(self) -> str | None:
        """Why it is open; None while it is closed."""
        return self._reason

    def allowance(self, sender: object, full: int) -> int:
        """How many messages this sender may claim now; 0 = wait."""
        with self._lock:
            if self._reason is None:
                return full if self._limit is None else min(full, self._limit)
            if self._prober not in (None, sender) or time.monotonic() < self._probe_at:
                return 0
            self._prober = sender
            return min(full, PROBE_MESSAGES)

    def wait(self) -> float:
        """Seconds until it is worth asking for an allowance again."""
        with self._lock:
            return min(max(self._probe_at - time.monotonic(), 0.05), 1.0)

    def failed(self, reason: str) -> bool:
        """The sink is unwell. True where that is news."""
        with self._lock:
            news = self._reason is None
            self._reason = reason
            self._limit = PROBE_MESSAGES
            self._prober = None
            self._probe_at = time.monotonic() + self._backoff.next()
            return news

    def worked(self, full: int) -> bool:
        """The sink took messages, or could be reached while there were none. True where that is news."""
        if self._reason is None and self._limit is None:
            return False
        with self._lock:
            news = self._reason is not None
            self._reason = None
            self._prober = None
            self._backoff.reset()
            self._limit = (self._limit or PROBE_MESSAGES) * 2
            if self._limit >= full:
                self._limit = None
            return news
