"""The thread that hears writers' notifications. Polling alone must do without it; it only makes an idle relay quick."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg
import structlog

from relay.backoff import Backoff
from relay.database.connection import Database, translated
from relay.errors import RelayError
from relay.process.stopping import Stopping
from relay.statements import statement
from relay.telemetry.metrics import Metrics

log = structlog.get_logger("relay")

PROBE_S = 10.0
"""So often the connection must prove that notifications still arrive."""
ALARMING_USAGE = 0.5
"""Of the server's notification queue. When it is full, every commit with a notification fails."""
ANSWER_S = 5.0
"""So long a probe may take."""


class Listener:
    """LISTENs, wakes the engines, and proves to itself that it hears.

    Args:
        wake: called for every notification, and after each new connection.
        probe: name of a channel of this process's own. A firewall, or a pooler in transaction mode, can swallow
            notifications without an error, so it regularly sends one to itself.
    """

    def __init__(
        self, database: Database, wake: Callable[[], None], probe: str, metrics: Metrics, stopping: Stopping
    ) -> None:
        self._database = database
        self._wake = wake
        self._probe = probe
        self._metrics = metrics
        self._stopping = stopping
        self.hears = False

    def run(self) -> None:
        backoff = Backoff(0.5, 30.0)
        while not self._stopping.is_set():
            try:
                self._listen(backoff)
            except RelayError as error:
                self._deaf(backoff, str(error))
            except psycopg.Error as error:
                self._deaf(backoff, str(translated(error)))
            self._stopping.wait(backoff.next())
        self._database.close()

    def _listen(self, backoff: Backoff) -> None:
        conn = self._database.connection()
        if self._database.pooled:
            raise RelayError("a pooler passes none on: set listen_url to a direct connection")
        conn.execute(statement("process/listen"))
        conn.execute(statement("process/listen_probe").replace("$probe", self._probe).encode())
        while not self._stopping.is_set():
            self._prove(conn)
            if not self.hears:
                log.info("notifications arrive")
            self.hears = True
            self._metrics.listener_up.set(1)
            backoff.reset()
            # What was committed while nobody listened was not heard.
            self._wake()
            self._hear(conn, PROBE_S)

    def _prove(self, conn: psycopg.Connection[Any]) -> None:
        row = conn.execute(statement("process/notify_probe"), {"channel": self._probe}).fetchone()
        usage, _, is_read_only = row or (0.0, None, False)
        self._note_usage(usage)
        if is_read_only:
            # After a switch-over the server that was left may live on, and let its listeners hear themselves.
            raise RelayError("the server is read-only, so nobody writes messages there")
        deadline = time.monotonic() + ANSWER_S
        while time.monotonic() < deadline and not self._stopping.is_set():
            for notification in conn.notifies(timeout=0.2, stop_after=1):
                if notification.channel == self._probe:
                    return
                self._wake()
        if not self._stopping.is_set():
            raise RelayError("notifications do not arrive: is listen_url a direct connection?")

    def _note_usage(self, usage: float) -> None:
        self._metrics.notify_queue_usage.set(usage)
        if usage >= ALARMING_USAGE:
            log.warning("notification queue is filling up: some session listens and never reads", usage=round(usage, 2))

    def _hear(self, conn: psycopg.Connection[Any], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self._stopping.is_set():
            for _ in conn.notifies(timeout=0.5, stop_after=1):
                self._wake()

    def _deaf(self, backoff: Backoff, reason: str) -> None:
        if self.hears or backoff.failures == 0:
            log.warning("notifications do not arrive; polling", reason=reason)
        self.hears = False
        self._metrics.listener_up.set(0)
        self._database.close()
