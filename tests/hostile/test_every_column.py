"""Every column that a writer may set, with what PostgreSQL takes there, into every type of sink.

Each message is delivered, dead with a reason, or refused at the insert; and its neighbours flow. What else could go the
same way: a column that is new, a sink that renders headers in another way, a value that one library refuses with an
exception of its own; so all rows go to all sinks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from sinks import memory
from tests import local_handlers
from tests.harness.served import Served
from tests.hostile.rows import HOSTILE, REFUSED, Hostile
from tests.servers.kafka import KafkaCluster
from tests.servers.sqs_stub import SqsStub

Arrived = Callable[[], set[str]]
"""The message ids that a broker has."""


def write(url: str, rows: tuple[Hostile, ...]) -> tuple[dict[int, Hostile], dict[int, str], set[str]]:
    """Insert them, each behind a neighbour with a key of its own and before one of the same key.

    Returns:
        Those that were taken, by id; the neighbours' message ids, by id; the names of those that were refused.
    """
    taken: dict[int, Hostile] = {}
    neighbours: dict[int, str] = {}
    refused: set[str] = set()
    with psycopg.connect(url, autocommit=True) as conn:

        def insert(columns: dict[str, str]) -> tuple[int, str] | None:
            values = {"kind": "'made'", "payload": "'{}'", **columns}
            text = f"insert into relay.outbox ({', '.join(values)}) values ({', '.join(values.values())})"
            row = conn.execute(f"{text} returning id, message_id::text".encode()).fetchone()
            return (row[0], row[1]) if row else None

        for number, row in enumerate(rows):
            key = row.columns.get("key", f"'key {number}'")
            neighbour = insert({"key": f"'neighbour {number}'"})
            assert neighbour is not None
            neighbours[neighbour[0]] = neighbour[1]
            try:
                with conn.transaction():
                    written = insert({"key": key, **row.columns})
            except psycopg.Error:
                refused.add(row.name)
                continue
            if written is not None:  # else it is a duplicate
                taken[written[0]] = row
            if "key" not in row.columns:
                behind = insert({"key": key})
                assert behind is not None
                neighbours[behind[0]] = behind[1]
    return taken, neighbours, refused


@pytest.fixture
def stream(redis_url: str, redis_client: redis.Redis) -> tuple[dict[str, Any], Arrived]:
    def arrived() -> set[str]:
        entries: Any = redis_client.xrange("events")
        return {fields[b"message_id"].decode() for _, fields in entries}

    return {"type": "redis-stream", "url": redis_url, "stream": "events"}, arrived


@pytest.fixture
def sidekiq(redis_url: str, redis_client: redis.Redis) -> tuple[dict[str, Any], Arrived]:
    def arrived() -> set[str]:
        # Not parsed: some are nested deeper than Python's parser goes.
        jobs: Any = redis_client.lrange("queue:default", 0, -1)
        return {jid.decode() for job in jobs for jid in re.findall(rb'"jid":"([0-9a-f]{24})"', job)}

    return {"type": "sidekiq", "url": redis_url}, arrived


@pytest.fixture
def sqs(sqs_stub: SqsStub) -> tuple[dict[str, Any], Arrived]:
    def arrived() -> set[str]:
        return {entry["MessageAttributes"]["message_id"]["StringValue"] for _, entry in sqs_stub.sent}

    return {"type": "sqs", "queue": "orders", "client": dict(sqs_stub.client)}, arrived


@pytest.fixture
def topic(kafka: KafkaCluster) -> tuple[dict[str, Any], Arrived]:
    name = kafka.new_topic()

    def arrived() -> set[str]:
        return {record.headers["message_id"].decode() for record in kafka.read(name)}

    return {"type": "kafka", "topic": name, "client": kafka.client}, arrived


@pytest.fixture
def kept() -> Iterator[tuple[dict[str, Any], Arrived]]:
    memory.forget("main")
    yield {"type": "memory"}, lambda: {str(message.message_id) for message in memory.delivered("main")}
    memory.forget("main")


@pytest.fixture
def threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], Arrived]:
    monkeypatch.setenv(local_handlers.FOLDER, str(tmp_path))
    keys = {"type": "local", "handlers": {"*": "tests.local_handlers:take"}, "executor": "thread", "concurrency": 2}
    return keys, lambda: {note["message_id"] for note in local_handlers.notes(tmp_path)}


@pytest.fixture
def processes(threads: tuple[dict[str, Any], Arrived]) -> tuple[dict[str, Any], Arrived]:
    return {**threads[0], "executor": "process"}, threads[1]


SINKS = [
    pytest.param("kept", "none", id="memory"),
    pytest.param("kept", "key", id="memory, ordered"),
    pytest.param("stream", "none", id="redis-stream"),
    pytest.param("stream", "key", id="redis-stream, ordered"),
    pytest.param("sidekiq", "none", id="sidekiq"),
    pytest.param("sqs", "none", id="sqs"),
    pytest.param("sqs", "key", id="sqs, ordered"),
    pytest.param("threads", "none", id="local threads"),
    pytest.param("processes", "none", id="local processes"),
    pytest.param("topic", "none", id="kafka", marks=pytest.mark.full),
    pytest.param("topic", "key", id="kafka, ordered", marks=pytest.mark.full),
]


@pytest.mark.parametrize(("sink", "order"), SINKS)
def test_each_message_is_delivered_dead_or_refused(
    relay_database_url: str, request: pytest.FixtureRequest, sink: str, order: str
) -> None:
    keys, arrived = request.getfixturevalue(sink)
    with ExitStack() as stack:
        served = stack.enter_context(Served(relay_database_url, {"main": {**keys, "order": order}}))
        taken, neighbours, refused = write(relay_database_url, HOSTILE)
        assert refused == REFUSED
        served.work([id for id, row in taken.items() if not row.stays] + list(neighbours))
        assert {taken[id].name for id in served.live(list(taken))} == {row.name for row in HOSTILE if row.stays}
        dead = served.dead()
    assert not dead.keys() & neighbours.keys()
    assert all(reason.strip() for reason in dead.values())
    wanted = set(neighbours.values())
    if sink == "sidekiq":
        wanted = {each.replace("-", "")[:24] for each in wanted}
    assert wanted <= arrived()
