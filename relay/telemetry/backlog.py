"""The thread that counts what waits, as gauges that an alarm can be set on. One relay counts for all: the others have
no such series, so that a sum over all relays is right, and the database counts once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Gauge

from relay.config.models import UNROUTED
from relay.database.connection import Database
from relay.errors import RelayError
from relay.statements import statement

log = structlog.get_logger("relay")

EVERY_S = 5.0
SHARE = 20
"""Counting a long queue takes a while: at most one part in so many of the time is spent on it."""


class Backlog:
    """Gauges of every sink that the database has.

    Args:
        database: a connection of its own.
        worker: this relay.
        wait: waits for so many seconds; True where the relay ends.
    """

    def __init__(
        self, database: Database, worker: str, registry: CollectorRegistry, wait: Callable[[float], bool]
    ) -> None:
        self._database = database
        self._worker = worker
        self._wait = wait
        self._failing = False

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=registry)

        self._messages = gauge("relay_backlog_messages", "Messages by what they wait for.", "sink", "state")
        self._oldest = gauge("relay_backlog_oldest_due_seconds", "Age of the oldest due message.", "sink")
        self._paused = gauge("relay_sink_paused", "1 while nothing is claimed for it.", "sink")
        self._open = gauge("relay_sink_circuit_open", "1 while a relay finds it unavailable.", "sink")
        self._relays = gauge("relay_sink_relays", "Relays that serve it.", "sink")

    def run(self) -> None:
        # Until the relay has said that it is there, another one may think that nobody counts.
        self._wait(1.0)
        while True:
            started = time.monotonic()
            try:
                self.look()
                self._failing = False
            except RelayError as error:
                self._clear()
                if not self._failing:
                    log.warning("backlog was not counted", reason=str(error))
                self._failing = True
            if self._wait(max(EVERY_S, (time.monotonic() - started) * SHARE)):
                break
        self._database.close()

    def look(self) -> None:
        """Count, if it is this relay that does it for all."""
        [(ours, relays)] = self._database.query(statement("process/backlog_turn"), {"worker": self._worker})
        rows = self._database.query(statement("admin/status/status")) if ours else []
        # Replaced at once as far as that goes: sinks come and go.
        self._clear()
        serving = json.loads(relays or "{}")
        for row in rows:
            self._set(row, serving)

    def _set(self, row: tuple[Any, ...], serving: dict[str, int]) -> None:
        sink, due, scheduled, claimed, dead, oldest, paused, unavailable, _, _, later, retrying, held, keys, *_ = row
        if sink == UNROUTED:
            self._messages.labels(sink, UNROUTED).set(due + scheduled)
            return
        counts = {"due": due, "later": later, "retrying": retrying, "held": held, "keys": keys}
        for state, messages in {**counts, "claimed": claimed, "dead": dead}.items():
            self._messages.labels(sink, state).set(messages)
        self._oldest.labels(sink).set(oldest or 0.0)
        self._paused.labels(sink).set(paused is not None)
        self._open.labels(sink).set(unavailable is not None)
        self._relays.labels(sink).set(serving.get(sink, 0))

    def _clear(self) -> None:
        for metric in (self._messages, self._oldest, self._paused, self._open, self._relays):
            metric.clear()
