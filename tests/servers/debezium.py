"""Debezium 3.6 (from Maven Central) on an outbox table: what its event router and Kafka Connect's converters make."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
from confluent_kafka import Consumer, TopicPartition

from tests.servers.base import Server, ServerUnavailable, run_server, wait_until
from tests.servers.kafka import QUIET, quiet_admin
from tests.servers.packages import apt_install, maven_jars

JARS = (
    "io.debezium:debezium-connector-postgres:3.6.1.Final",
    "io.debezium:debezium-embedded:3.6.1.Final",
    "org.apache.kafka:connect-runtime:4.1.0",
    "org.apache.kafka:connect-json:4.1.0",
)
STREAMS = "select from pg_replication_slots where slot_name = 'debezium' and active"


class Routed(NamedTuple):
    """A record as Debezium would produce it."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


@dataclass(frozen=True)
class Debezium:
    """A running connector."""

    server: Server
    routes: frozenset[str]
    """The names of the options."""

    def records(self, count: int, timeout: float = 30.0) -> dict[str, list[Routed]]:
        """What it made of the `count` rows that were inserted, by the name of the options, in the rows' order."""
        found: dict[str, list[Routed]] = {}

        def all_there() -> bool:
            found.clear()
            for line in self.server.log.read_text().splitlines():
                if line.startswith('{"route"'):
                    sent = json.loads(line)
                    found.setdefault(sent["route"], []).append(_routed(sent))
            return found.keys() == self.routes and all(len(records) >= count for records in found.values())

        try:
            wait_until(all_there, timeout=timeout, what=f"Debezium's {count} records")
        except TimeoutError as error:
            raise RuntimeError(f"{error}; its log ends:\n{self.server.tail(10)}") from error
        return found


def _routed(sent: Mapping[str, Any]) -> Routed:
    headers = [(name, _bytes(text)) for name, text in sent["headers"]]
    return Routed(sent["topic"], _bytes(sent["key"]), _bytes(sent["value"]), headers)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


@contextmanager
def capturing(url: str, table: str, options: Mapping[str, Mapping[str, str]]) -> Iterator[Debezium]:
    """Run the connector on a table: it sees every row that is inserted from now on.

    Args:
        url: of a database whose server has `wal_level = logical`.
        options: name → `transforms.outbox.…`, `key.converter…` and `value.converter…` of a connector.

    Raises:
        ServerUnavailable: Java, its compiler or the jars cannot be had here.
    """
    address = urlsplit(url)
    connector = {
        "name": "outbox",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
        "topic.prefix": "app",
        "plugin.name": "pgoutput",
        "publication.autocreate.mode": "filtered",
        "snapshot.mode": "no_data",
        # Four headers about the connector itself, which say nothing of the message.
        "extended.headers.enabled": "false",
        "table.include.list": table,
        "database.hostname": str(address.hostname),
        "database.port": str(address.port),
        "database.user": str(address.username),
        "database.dbname": address.path.removeprefix("/"),
    }
    argv = _java(Path(__file__).with_name("DebeziumOutbox.java"), json.dumps(connector), json.dumps(options))

    def streams() -> bool:
        with psycopg.connect(url) as conn:
            return conn.execute(STREAMS).fetchone() is not None

    with run_server(argv, ready=streams, name="debezium", timeout=60) as server:
        yield Debezium(server, frozenset(options))


def consumed(bootstrap: str, count: int) -> list[Routed]:
    """What a consumer finds in all topics; it must be so many records."""
    client = {"bootstrap.servers": bootstrap}
    topics = quiet_admin(client).list_topics(timeout=10).topics
    consumer = Consumer({**client, **QUIET, "group.id": uuid4().hex})
    consumer.assign([TopicPartition(name, number, 0) for name, topic in topics.items() for number in topic.partitions])
    found: list[Routed] = []
    deadline = time.monotonic() + 20
    while len(found) < count and time.monotonic() < deadline:
        for record in consumer.consume(count, timeout=0.2):
            assert record.error() is None, record.error()
            headers: Any = record.headers()
            found.append(Routed(str(record.topic()), record.key(), record.value(), headers))
    consumer.close()
    assert len(found) == count
    return found


def _java(source: Path, *arguments: str) -> Sequence[str]:
    jars = maven_jars(*JARS)
    if not shutil.which("javac"):
        apt_install("default-jdk-headless")
    if not shutil.which("javac"):
        raise ServerUnavailable("javac", "default-jdk-headless", "no Java compiler")
    return ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", str(source), *arguments]
