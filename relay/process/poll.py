"""One worker's thread: run the engine, and wait no longer than makes sense between two rounds."""

from __future__ import annotations

import random
import threading
import time

import structlog

from relay.process.engine import Engine
from relay.process.stopping import Stopping

log = structlog.get_logger("relay")

SHORTEST_S = 0.001
LONGEST_S = 1.0
IDLE_SHARE = 0.25
"""After being idle for a second, wait so many seconds more: latency stays a fraction of the gap between messages."""


class Poll:
    """Runs one engine until the process stops."""

    def __init__(self, engine: Engine, stopping: Stopping) -> None:
        self.engine = engine
        self._stopping = stopping
        self._wake = threading.Event()
        self._busy_at = time.monotonic()
        self.idle = False
        """Whether its last round delivered nothing."""

    def wake(self) -> None:
        """There may be work."""
        self._wake.set()

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.round()
            except Exception:
                # A bug must not end the relay quietly: say so, and go on slowly.
                log.exception("worker failed", sink=self.engine.name)
                self._stopping.wait(LONGEST_S)
        self.engine.close()

    def round(self) -> None:
        """Run the engine once, and wait where that makes sense."""
        self._wake.clear()
        wait = self.engine.run_once()
        if wait == 0.0:
            self._busy_at = time.monotonic()
            self.idle = False
            return
        self.idle = True
        if wait is None:
            idle_for = time.monotonic() - self._busy_at
            wait = min(max(SHORTEST_S, idle_for * IDLE_SHARE), LONGEST_S) * random.uniform(0.75, 1.0)
        self._wake.wait(wait)
