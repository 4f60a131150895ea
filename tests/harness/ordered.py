"""One ordered sink on a real database, driven step by step: no threads, no waiting, time passes by SQL."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from relay.admin.apply import apply
from relay.claims.answers import not_sent, whole
from relay.claims.claim import Claim
from relay.claims.edge import Edge
from relay.claims.parking import let_due_destinations_go
from relay.claims.shards import ShardClaims
from relay.claims.stuck import let_due_keys_go
from relay.config.settings import SinkSettings, load
from relay.database.connection import Database
from relay.process.store import Store
from sinks.base import DELIVERED, Message, Outcome, Retry

Decide = Callable[[Message], Outcome]

BEHIND = Retry("not sent: an earlier message of its key failed")


def deliver(_: Message) -> Outcome:
    return DELIVERED


@dataclass
class OrderedSink:
    """What a test does with the sink `main`, and what its broker has seen."""

    url: str
    settings: SinkSettings
    log: list[Message] = field(default_factory=list)
    """Every copy that was delivered, oldest first."""
    opened: list[Database] = field(default_factory=list)

    def worker(self, edge: Edge | None = None) -> ShardClaims:
        """One of a relay of its own, or of the one whose workers share this edge."""
        database = Database(self.url)
        self.opened.append(database)
        return ShardClaims(database, self.settings, f"worker {uuid4()}", edge)

    def sql(self, text: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run one statement in its own transaction."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(text.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Connection]:
        """A writer's transaction, committed at the end of the block."""
        with psycopg.connect(self.url) as connection:
            yield connection

    def insert(self, *keys: str | None, on: psycopg.Connection | None = None, **columns: Any) -> list[int]:
        """Write a message for each key; their ids."""
        if on is None:
            with self.transaction() as connection:
                return self.insert(*keys, on=connection, **columns)
        values = {"kind": "made", "payload": "{}", "key": None, **columns}
        marks = ", ".join(["%s"] * len(values))
        text = f"insert into relay.outbox ({', '.join(values)}) values ({marks}) returning id"
        rows = [on.execute(text.encode(), [*{**values, "key": key}.values()]).fetchone() for key in keys]
        return [row[0] for row in rows if row]

    def send(self, worker: ShardClaims, claim: Claim, decide: Decide = deliver) -> list[Outcome]:
        """Hand a claim to the broker, as the engine and a sink that keeps its contract do."""
        if claim.unread is not None:
            worker.read(claim, self.settings.message_bytes)
        outcomes: list[Outcome] = []
        stuck: set[str | None] = set()
        decided = not_sent(claim, {}, fenced=False)
        for at, message in enumerate(claim.messages):
            if at in decided:
                continue
            outcome = BEHIND if message.key in stuck else decide(message)
            if outcome is DELIVERED:
                self.log.append(message)
            elif message.key is not None:
                stuck.add(message.key)
            outcomes.append(outcome)
        return list(whole(claim, outcomes, decided))

    def round(self, worker: ShardClaims, decide: Decide = deliver, limit: int = 1000) -> list[int] | None:
        """Claim, send and settle once; the ids that were sent, None where there was nothing."""
        claim = worker.claim(limit)
        if claim is None:
            return None
        worker.settle(claim, worker.judge(claim, self.send(worker, claim, decide)))
        return [message.id for message in claim.messages if message.id not in claim.unsent]

    def drain(self, *workers: ShardClaims, decide: Decide = deliver) -> None:
        """Rounds and upkeep, time passing quickly, until nothing is left to do."""
        workers = workers or (self.worker(),)
        for _ in range(1000):
            self.pass_time()
            self.upkeep()
            rounds = [self.round(worker, decide) for worker in workers]
            if not any(rounds) and self.is_empty():
                return
        raise AssertionError(f"not drained: {self.sql('table relay.outbox')} {self.sql('table relay.stuck_keys')}")

    def is_empty(self) -> bool:
        return not any(self.count(table) for table in ("outbox", "claims", "stuck_keys", "destinations"))

    def count(self, table: str = "outbox", where: str = "true") -> int:
        number: int = self.sql(f"select count(*) from relay.{table} where {where}")[0][0]
        return number

    def pass_time(self) -> None:
        """Every backoff and every scheduled message becomes due; leases live on."""
        self.sql("update relay.stuck_keys set retry_at = now() where retry_at is not null and destination is null")
        self.sql("update relay.destinations set retry_at = now() where retry_at is not null")
        self.sql("update relay.outbox set run_at = now() where run_at is not null and run_at < 'infinity'")

    def expire_claims(self) -> None:
        """Whoever holds a claim now has lost it, once `upkeep` was done."""
        self.sql("update relay.claims set locked_until = now() - interval '1 second'")

    def upkeep(self) -> None:
        """What `Maintenance` does in a round."""
        with closing(Database(self.url)) as database:
            store = Store(database)
            while store.reap():
                pass
            store.promote(1000)
            let_due_keys_go(database)
            let_due_destinations_go(database, 50)

    def keys(self, *, key: str) -> list[int]:
        """Ids of a key as the broker saw them, first copies only."""
        return list(dict.fromkeys(message.id for message in self.log if message.key == key))

    def close(self) -> None:
        for database in self.opened:
            database.close()


@pytest.fixture
def ordered(relay_database_url: str) -> Iterator[Callable[..., OrderedSink]]:
    """Makes the sink: `ordered(shards=4, after_dead="block", …)`."""
    made: list[OrderedSink] = []

    def make(**keys: Any) -> OrderedSink:
        made.append(ordered_sink(relay_database_url, **keys))
        return made[-1]

    yield make
    for sink in made:
        sink.close()


def ordered_sink(url: str, **keys: Any) -> OrderedSink:
    """The sink `main`, configured and applied, to which every message goes."""
    settings = load(
        None,
        {
            "RELAY_DATABASE_URL": url,
            "RELAY_SINKS": json.dumps({"main": {"type": "memory", "order": "key", "shards": 4, **keys}}),
            "RELAY_ROUTES": json.dumps([{"kind": "*", "sink": "main"}]),
        },
    )
    with closing(Database(url)) as database:
        apply(database, settings)
    return OrderedSink(url, settings.sinks["main"])
