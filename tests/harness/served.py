"""Sinks of one database, served in this process step by step: real brokers, no threads, and time passes by SQL."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from types import TracebackType
from typing import Any

import psycopg

from relay.admin.apply import apply
from relay.claims.destinations import Destinations
from relay.claims.stuck import let_due_keys_go
from relay.config.settings import SinkSettings, load
from relay.database.connection import Database
from relay.process.circuit import Circuit
from relay.process.engine import Engine
from relay.process.leases import Leases
from relay.process.parts import new_claims
from relay.process.stopping import Stopping
from relay.process.store import Store
from relay.telemetry.metrics import Metrics

QUICK: Mapping[str, Any] = {"max_attempts": 2, "backoff": {"base": "10ms", "max": "20ms"}}


class Served:
    """The sinks of a configuration, and what a test writes for them.

    Args:
        sinks: keys of each sink, by name.
        database: keys of `[database]` besides `url`.
    """

    def __init__(
        self, url: str, sinks: Mapping[str, Mapping[str, Any]], *, database: Mapping[str, Any] | None = None
    ) -> None:
        self.url = url
        environment = {
            "RELAY_SINKS": json.dumps({name: {**QUICK, **keys} for name, keys in sinks.items()}),
            "RELAY_ROUTES": json.dumps([{"kind": "*", "sink": next(iter(sinks))}]),
            "RELAY_DATABASE": json.dumps({"url": url, **(database or {})}),
        }
        settings = load(None, environment)
        with closing(Database(url)) as connection:
            apply(connection, settings)
        self.metrics = Metrics()
        self.engines = [self._engine(sink) for sink in settings.sinks.values()]
        self.store = Store(Database(url))

    def _engine(self, sink: SinkSettings) -> Engine:
        destinations = Destinations()
        return Engine(
            sink,
            claims=new_claims(Database(self.url), sink, "served", destinations=destinations),
            destinations=destinations,
            sink=sink.sink_class(sink.config),
            circuit=Circuit(),
            leases=Leases(),
            stopping=Stopping(),
            metrics=self.metrics,
        )

    def __enter__(self) -> Served:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for engine in self.engines:
            engine.close()
        self.store.database.close()

    def sql(self, text: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run one statement in its own transaction; the rows, if it gives any."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(text.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []

    def upkeep(self) -> None:
        """What a relay's maintenance does in a round; every backoff is over, and leases live on."""
        self.sql("update relay.stuck_keys set retry_at = now() where retry_at is not null")
        self.sql("update relay.outbox set run_at = now() where run_at < 'infinity' and last_error is not null")
        while self.store.reap():
            pass
        self.store.promote(1000)
        let_due_keys_go(self.store.database)

    def round(self) -> list[float | None]:
        """Let each worker claim, send and settle once; what each says about its next round."""
        return [engine.run_once() for engine in self.engines]

    def work(self, ids: Iterable[int], timeout: float = 30.0) -> None:
        """Rounds and upkeep until these messages have left the queue."""
        wanted = list(ids)
        deadline = time.monotonic() + timeout
        while left := self.live(wanted):
            waits = self.round()
            if 0.0 not in waits:
                self.upkeep()
            if time.monotonic() > deadline:
                rows = self.sql(
                    "select id, sink, left(kind, 40), attempts, run_at::text, last_error from relay.outbox"
                    " where id = any(%s)",
                    left,
                )
                raise AssertionError(f"still there: {rows}")

    def live(self, ids: Sequence[int]) -> list[int]:
        """Those of these messages that have not left the queue."""
        return [row[0] for row in self.sql("select id from relay.outbox where id = any(%s) order by id", list(ids))]

    def dead(self) -> dict[int, str]:
        """Dead messages and why they are so."""
        return dict(self.sql("select id, error from relay.dead"))
