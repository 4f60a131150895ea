"""How the process is told to end: first gracefully, then at once. Every wait in it ends when this says so."""

from __future__ import annotations

import threading
import weakref


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

    def is_at_once(self) -> bool:
        return self._at_once.is_set()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the graceful stop; True where it came."""
        return self._graceful.wait(seconds)

    def wait_at_once(self, seconds: float | None = None) -> bool:
        """Wait for the stop at once; True where it came."""
        return self._at_once.wait(seconds)
