"""A row of an outbox table goes two ways: through Debezium's own event router, and through the relay's sink.

Both must leave the same record. Kafka here is librdkafka's mock: what a record holds does not depend on the broker.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from sinks.base import DELIVERED, Message, SinkConfig
from sinks.kafka.sink import KafkaOptions, KafkaSink
from sinks.testing import batch
from tests.servers.debezium import JARS, Routed, capturing, consumed
from tests.servers.kafka import mock_cluster
from tests.servers.packages import maven_jars
from tests.servers.postgres import migrate, new_cluster

pytestmark = pytest.mark.full

STRING = "org.apache.kafka.connect.storage.StringConverter"
JSON = "org.apache.kafka.connect.json.JsonConverter"
PLAIN = {"key.converter": STRING, "value.converter": STRING}
WITH_SCHEMAS = {"key.converter": JSON, "value.converter": JSON}
WITHOUT = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
BYTES = {"key.converter": STRING, "value.converter": "io.debezium.converters.BinaryDataConverter"}
FIELDS = "transforms.outbox.table.fields.additional.placement"

SAME: Mapping[str, tuple[dict[str, str], dict[str, Any]]] = {
    "default": (PLAIN, {}),
    "json": (WITH_SCHEMAS | WITHOUT, {"key_converter": "json", "value_converter": "json"}),
    "schemas": (WITH_SCHEMAS, {"key_converter": "json-schema", "value_converter": "json-schema"}),
    "headers": (
        PLAIN | {FIELDS: "type:header:eventType,tenant:header,version:header"},
        {"headers": {"eventType": "{kind}", "tenant": "{header.tenant}", "version": "{header.version}"}},
    ),
    "topic": (
        PLAIN | {"transforms.outbox.route.topic.replacement": "${routedByValue}.events"},
        {"topic": "{header.aggregatetype}.events"},
    ),
    "tombstone": (PLAIN | {"transforms.outbox.route.tombstone.on.empty.payload": "true"}, {}),
}
"""Debezium's options, and ours that do the same."""

ROWS = [
    (
        "Order",
        "42",
        "OrderCreated",
        '{"b": 1, "a": [1.50, null], "e": [], "n": 1234567890123456789, "x": 1e308}',
        "acme",
        3,
    ),
    (
        "Order",
        'zoë \x01\x1f\x7f\n\\u001f"\\/\u2028 😀\U0010ffff',
        "OrderPaid",
        '{"t": "é\\u0001\\\\ \\"😀"}',
        None,
        None,
    ),
    ("customer", "", "Renamed", '"text"', "zoë", 0),
    ("customer", "1", "Renamed", "null", None, -1),
    ("customer", "1", "Left", None, None, None),
    ("customer", "1", "Left", "12.50", None, None),
]

TABLE = """
    create table outbox (
      id             uuid primary key,
      aggregatetype  varchar(255) not null,
      aggregateid    varchar(255) not null,
      type           varchar(255) not null,
      payload        {payload},
      tenant         text,
      version        int
    );
    create trigger relay after insert on outbox for each row execute function relay.accept_debezium();
"""
INSERT = "insert into outbox values (%s, %s, %s, %s, %s, %s, %s)"
MESSAGES = """
    select id, kind, key, payload::text, body, coalesce(headers, '{}'), message_id from relay.outbox order by id
"""


@pytest.fixture(scope="module")
def logical_postgres() -> Iterator[str]:
    """URL of a database with the relay's schema, on a server that Debezium can stream from."""
    maven_jars(*JARS)  # here, where a download may take its time
    with new_cluster() as cluster, cluster.run(wal_level="logical"):
        migrate(cluster.url())
        yield cluster.url()


@pytest.fixture
def database(logical_postgres: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(logical_postgres, autocommit=True) as conn:
        yield conn
        conn.execute("drop table outbox; truncate relay.outbox; drop publication dbz_publication")
        conn.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots")


def messages(conn: psycopg.Connection) -> list[Message]:
    """What the trigger made of the rows, as the engine hands it to a sink."""
    found = []
    for number, kind, key, payload, body, headers, message_id in conn.execute(MESSAGES):
        text = None if payload is None else payload.encode()
        found.append(Message(number, kind, key, text, body, headers, message_id, 1, 1_764_445_000_000_000))
    return found


def produced(bootstrap: str, sent: list[Message], **options: Any) -> list[Routed]:
    """What a consumer finds of them."""
    parsed = KafkaOptions.model_validate({"envelope": "debezium", **options})
    sink = KafkaSink(SinkConfig("orders", parsed, client={"bootstrap.servers": bootstrap}))
    sink.open()
    try:
        assert sink.send(batch(sent)) == [DELIVERED] * len(sent)
    finally:
        sink.close()
    found = consumed(bootstrap, len(sent))
    order = {one.message_id: one.id for one in sent}
    return sorted(found, key=lambda record: order[UUID(bytes.decode(dict(record.headers)["id"] or b""))])


def test_every_record_is_the_event_router_s_own(database: psycopg.Connection, logical_postgres: str) -> None:
    database.execute(TABLE.format(payload="jsonb").encode())
    with capturing(logical_postgres, "public.outbox", {name: theirs for name, (theirs, _) in SAME.items()}) as debezium:
        for row in ROWS:
            database.execute(INSERT, [uuid4(), *row])
        routed = debezium.records(len(ROWS))
    sent = messages(database)
    assert routed.keys() == SAME.keys()
    for name, (_, ours) in SAME.items():
        with mock_cluster() as bootstrap:
            assert produced(bootstrap, sent, **ours) == routed[name], name


def test_bytes_go_out_as_they_are(database: psycopg.Connection, logical_postgres: str) -> None:
    database.execute(TABLE.format(payload="bytea").encode())
    options = {"bytes": BYTES, "json": WITH_SCHEMAS | WITHOUT, "schemas": WITH_SCHEMAS}
    with capturing(logical_postgres, "public.outbox", options) as debezium:
        database.execute(INSERT, [uuid4(), "Order", "42", "OrderCreated", b"\xff\xfe\x00\x01", None, None])
        routed = debezium.records(1)
    sent = messages(database)
    for name, converter in (("bytes", "string"), ("json", "json"), ("schemas", "json-schema")):
        with mock_cluster() as bootstrap:
            (ours,) = produced(bootstrap, sent, value_converter=converter)
        assert (ours.value, ours.headers) == (routed[name][0].value, routed[name][0].headers)


def test_an_expanded_payload_means_the_same(database: psycopg.Connection, logical_postgres: str) -> None:
    """With `table.expand.json.payload` Debezium writes the document anew; ours is the text that was stored."""
    database.execute(TABLE.format(payload="jsonb").encode())
    expanding = {"transforms.outbox.table.expand.json.payload": "true"}
    with capturing(logical_postgres, "public.outbox", {"expanded": WITH_SCHEMAS | WITHOUT | expanding}) as debezium:
        payload = '{"id": 1, "lines": [{"item": "é", "price": 39.98}], "paid": true, "at": {"n": 12345678901}}'
        database.execute(INSERT, [uuid4(), "Order", "42", "OrderCreated", payload, None, None])
        (theirs,) = debezium.records(1)["expanded"]
    with mock_cluster() as bootstrap:
        (ours,) = produced(bootstrap, messages(database), key_converter="json")
    assert (ours.topic, ours.key, ours.headers) == (theirs.topic, theirs.key, theirs.headers)
    assert json.loads(ours.value or b"") == json.loads(theirs.value or b"")
