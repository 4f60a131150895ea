"""How the process is told to end: first gracefully, then at once. Every wait in it ends when this says so.
Where it was told to end with the work, `Drain` knows when that is.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence

import structlog

from relay.errors import DatabaseUnavailable
from relay.process.store import Store

log = structlog.get_logger("relay")


class Stopping:
    """Of the process, or of a part of it (`part`), which ends with the whole or before."""

    def __init__(self) -> None:
        self._parts: weakref.WeakSet[Stopping] = weakref.WeakSet()
        self._graceful = threading.Event()
        self._at_once = threading.Event()

    def part(self) -> Stopping:
        """What tells a part of this to end."""
        part = Stopping()
        self._parts.add(part)
        if self.is_set():
            part.stop()
        return part

    def stop(self) -> None:
        """Claim nothing more; finish what is claimed."""
        self._graceful.set()
        for part in list(self._parts):
            part.stop()

    def stop_at_once(self) -> None:
        """Finish nothing more."""
        self._graceful.set()
        self._at_once.set()
        for part in list(self._parts):
            part.stop_at_once()

    def is_set(self) -> bool:
        return self._graceful.is_set()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the graceful stop; True where it came."""
        return self._graceful.wait(seconds)

    def wait_at_once(self, seconds: float | None = None) -> bool:
        """Wait for the stop at once; True where it came."""
        return self._at_once.wait(seconds)


class Drain:
    """Knows when nothing of these sinks is due or claimed, and says once what a person has to end."""

    def __init__(self, store: Store, sinks: Sequence[str]) -> None:
        self._store = store
        self._sinks = sinks
        self._said: set[str | tuple[str, str]] = set()

    def is_done(self) -> bool:
        try:
            if self._store.is_drained(self._sinks):
                return True
            for name, known in self._store.known_sinks().items():
                if name in self._sinks and known.paused is not None and name not in self._said:
                    self._said.add(name)
                    log.warning("waiting for a paused sink", sink=name, reason=known.paused)
            for one in self._store.unavailable():
                if one.sink in self._sinks and one.waiting and (one.sink, one.name) not in self._said:
                    self._said.add((one.sink, one.name))
                    log.warning(
                        "waiting for an unavailable destination",
                        sink=one.sink,
                        name=one.name,
                        waiting=one.waiting,
                        reason=one.reason,
                    )
        except DatabaseUnavailable:
            pass
        return False
