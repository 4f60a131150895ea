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
from relay.claims.stuck import let_due_keys_go
from relay.config.settings import load
from relay.database.connection import Database
from relay.process.parts import Parts
from relay.process.store import Store

QUICK: Mapping[str, Any] = {"max_attempts": 2, "backoff": {"base": "10ms", "max": "20ms"}}


class Served:
    """The sinks of a configuration, and what a test writes for them.

    Args:
        sinks: keys of each sink, by name.
        route: where what names no sink goes; default: the first sink.
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
        self.parts = Parts(settings, list(settings.sinks.values()))
        self.polls = self.parts.polls()
        self.store = Store(Database(url))

    def __enter__(self) -> Served:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for poll in self.polls:
            poll.engine.close()
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
        return [poll.engine.run_once() for poll in self.polls]

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
