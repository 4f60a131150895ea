"""How many messages a claim of single rows looks at, and where it starts.

While some session holds an old snapshot, nothing that left the queue can be cleaned from its index, and a scan from
the left edge wades through all of it. So a worker goes on after the last id that it claimed. Ids commit out of
order and messages come back, so this is a hint only: at times it looks through everything, more rarely the dearer the
last such look was. Where order is promised a hint is not enough: see `Edge`.
"""

from __future__ import annotations

import math
import threading
import time
from typing import NamedTuple

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
        self._fits = messages
        self._careful: int | None = None

    @property
    def limit(self) -> int:
        """Most messages of the next claim."""
        return self._fits if self._careful is None else min(self._fits, self._careful)

    @property
    def apart(self) -> bool:
        """Whether it must take one message, and that without its data."""
        return self._careful == 1

    def took(self, messages: int, size: int) -> None:
        """A claim found so many messages of so many bytes."""
        if self._careful is not None:
            self._careful = 2 * self._careful if messages and 2 * self._careful < self._messages else None
        if messages:
            by_bytes = size * 2 > self._size
            self._fits = min(self._messages, 2 * messages) if by_bytes else self._messages

    def failed(self) -> None:
        """A claim failed, maybe for one of its messages: look at one alone, then at twice as many each time."""
        self._careful = 1


class Look(NamedTuple):
    """One claim's way through the index."""

    after: int
    """It sees ids above this one; 0 = all."""
    everywhere: bool
    started: float


class Scan:
    """Where the next claim of a sink starts, shared by the workers of this process: they pass each other's rows by."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._after = 0
        self._highest = 0
        self._everywhere_at = 0.0

    def start(self) -> Look:
        with self._lock:
            now = time.monotonic()
            everywhere = now >= self._everywhere_at
            if everywhere:
                self._everywhere_at = math.inf  # one at a time
            return Look(0 if everywhere else self._after, everywhere, now)

    def found(self, look: Look, last: int | None) -> None:
        """Take note of the last id that a claim found; None: nothing."""
        with self._lock:
            if look.everywhere:
                now = time.monotonic()
                self._everywhere_at = now + (now - look.started) * (1 / FULL_SCAN_SHARE - 1)
            if last is not None:
                self._highest = max(self._highest, last)
            if look.everywhere and last is not None:
                self._after = last
            elif look.after <= self._after:  # else it was moved back meanwhile, for something that this one did not see
                # Where there was nothing, nothing lies behind any hint.
                self._after = max(self._after, self._highest if last is None else last)

    def failed(self, look: Look) -> None:
        """It is not known what it found."""
        if look.everywhere:
            with self._lock:
                self._everywhere_at = 0.0

    def go_back(self, message_id: int) -> None:
        """This message is ready again."""
        with self._lock:
            self._after = min(self._after, message_id - 1)
