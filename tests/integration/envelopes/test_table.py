"""Applications that write to a table in the layout of Debezium's outbox event router."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import Connection
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier

from tests.command import Command
from tests.servers.debezium import Routed, consumed
from tests.servers.kafka import mock_cluster
from tests.servers.postgres import every_postgres

TABLE = """
    create table outbox (
      id             uuid primary key,
      aggregatetype  varchar(255) not null,
      aggregateid    varchar(255) not null,
      type           varchar(255) not null,
      payload        jsonb
    )
"""
TRIGGER = "create trigger relay {} insert on outbox for each row execute function relay.accept_debezium()"
INSERT = "insert into outbox (id, aggregatetype, aggregateid, type, payload) values (%s, %s, %s, %s, %s)"
ONE = ("Order", "42", "OrderCreated", '{"b": 1, "a": [1.50, null], "n": 1234567890123456789}')
STORED = '{"a": [1.50, null], "b": 1, "n": 1234567890123456789}'

MESSAGES = "select message_id, kind, key, payload::text, body, headers, sink from relay.outbox order by id"


class Written(NamedTuple):
    message_id: UUID
    kind: str
    key: str | None
    payload: str | None
    body: bytes | None
    headers: dict[str, Any]
    sink: str


@pytest.fixture
def conn(relay_database_url: str) -> Iterator[Connection]:
    with psycopg.connect(relay_database_url, autocommit=True) as connection:
        connection.execute(TABLE)
        yield connection


def attach(conn: Connection, when: str = "after") -> None:
    conn.execute(SQL(TRIGGER).format(SQL(when)))


def written(conn: Connection) -> list[Written]:
    return [Written(*row) for row in conn.execute(MESSAGES).fetchall()]


def count(conn: Connection) -> int:
    row = conn.execute("select count(*) from outbox").fetchone()
    assert row
    return int(row[0])


@every_postgres
def test_a_row_becomes_a_message(conn: Connection) -> None:
    attach(conn)
    identity = uuid4()
    conn.execute(INSERT, [identity, *ONE])
    assert written(conn) == [
        Written(identity, "OrderCreated", "42", STORED, None, {"aggregatetype": "Order"}, "unrouted")
    ]


def test_it_is_routed_by_its_type(conn: Connection) -> None:
    attach(conn)
    conn.execute("insert into relay.sinks (name) values ('orders'), ('all')")
    conn.execute("insert into relay.routes (kind, sink) values ('Order*', 'orders'), ('*', 'all')")
    with conn.cursor() as cursor:
        cursor.executemany(INSERT, [[uuid4(), "Order", "1", kind, "{}"] for kind in ("OrderCreated", "UserLeft")])
    assert sorted((one.kind, one.sink) for one in written(conn)) == [
        ("OrderCreated", "all"),
        ("OrderCreated", "orders"),
        ("UserLeft", "all"),
    ]


@pytest.mark.parametrize(("when", "counted", "stored"), [("after", 1, 1), ("before", 0, 0)])
def test_the_trigger_s_time_says_what_becomes_of_the_row(
    conn: Connection, when: str, counted: int, stored: int
) -> None:
    attach(conn, when)
    assert conn.execute(INSERT, [uuid4(), *ONE]).rowcount == counted
    assert (count(conn), len(written(conn))) == (stored, 1)


def test_an_application_that_deletes_its_row_at_once(conn: Connection) -> None:
    attach(conn)
    identity = uuid4()
    with conn.transaction():
        conn.execute(INSERT, [identity, *ONE])
        assert conn.execute("delete from outbox where id = %s", [identity]).rowcount == 1
    assert [one.message_id for one in written(conn)] == [identity]


def test_a_view_takes_the_place_of_the_table(conn: Connection) -> None:
    conn.execute("drop table outbox")
    conn.execute("create view outbox as table relay.debezium_outbox")
    identity = uuid4()
    found = conn.execute(SQL("{} returning id, payload::text").format(SQL(INSERT)), [identity, *ONE])
    assert (found.rowcount, found.fetchall()) == (1, [(identity, STORED)])
    with conn.cursor().copy(
        "copy relay.debezium_outbox (id, aggregatetype, aggregateid, type, payload) from stdin"
    ) as copy:
        copy.write_row((str(uuid4()), "Order", "43", "OrderPaid", "{}"))
    assert [(one.kind, one.key) for one in written(conn)] == [("OrderCreated", "42"), ("OrderPaid", "43")]
    assert count(conn) == 0


def test_what_is_rolled_back_was_never_written(conn: Connection) -> None:
    attach(conn)
    with conn.transaction(force_rollback=True):
        conn.execute(INSERT, [uuid4(), *ONE])
    assert written(conn) == []


@pytest.mark.parametrize(
    ("column", "given", "payload", "body"),
    [
        ("jsonb", None, None, b""),
        ("jsonb", "null", "null", None),
        ("json", '{ "a":1,"a":2, "nul":"\\u0000" }', '{ "a":1,"a":2, "nul":"\\u0000" }', None),
        ("text", '{ "a":1 }', '{ "a":1 }', None),
        ("text", "<order/>", None, b"<order/>"),
        ("text", "", None, b""),
        ("bytea", b"\xff\xfe\x00", None, b"\xff\xfe\x00"),
    ],
)
def test_payloads_of_every_type(
    conn: Connection, column: str, given: Any, payload: str | None, body: bytes | None
) -> None:
    conn.execute("alter table outbox drop payload")
    conn.execute(SQL("alter table outbox add payload {}").format(SQL(column)))
    attach(conn)
    conn.execute(INSERT, [uuid4(), "Order", "42", "OrderCreated", given])
    (one,) = written(conn)
    assert (one.payload, one.body) == (payload, body)


def test_further_columns_become_headers(conn: Connection) -> None:
    conn.execute("""
        alter table outbox add tenant text, add version int, add nothing text, add more jsonb,
                           add createdat timestamptz, add "Camel" boolean
    """)
    attach(conn)
    conn.execute(
        "insert into outbox values (%s, 'Order', '42', 'OrderCreated', '{}', 'zoë', 3, null, '{\"a\": null}',"
        " '2026-01-31T12:00:00Z', true)",
        [uuid4()],
    )
    headers = written(conn)[0].headers
    assert headers.pop("createdat").startswith("2026-01-31T")
    assert headers == {"aggregatetype": "Order", "tenant": "zoë", "version": 3, "more": {"a": None}, "Camel": True}


def test_the_trace_context_is_read(conn: Connection) -> None:
    conn.execute("alter table outbox add tracingspancontext varchar(256)")
    attach(conn)
    # As java.util.Properties.store writes them.
    context = (
        "#Sat Jan 31 12:00:00 UTC 2026\r\n"
        "traceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n"
        "tracestate=rojo\\=00f067aa0ba902b7,congo\\=t61r\\:c\r\n"
        "empty=\r\n"
    )
    conn.execute(
        "insert into outbox values (%s, 'Order', '42', 'Created', '{}', %s), (%s, 'Order', '42', 'Paid', '{}', null)",
        [uuid4(), context, uuid4()],
    )
    traced, untraced = written(conn)
    assert traced.headers == {
        "aggregatetype": "Order",
        "tracingspancontext": context,
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": "rojo=00f067aa0ba902b7,congo=t61r:c",
        "empty": "",
    }
    assert untraced.headers == {"aggregatetype": "Order"}


def test_other_types_and_no_type_at_all(conn: Connection) -> None:
    conn.execute("drop table outbox")
    conn.execute("create table outbox (id text, aggregatetype text, aggregateid bigint, payload jsonb)")
    attach(conn)
    identity = uuid4()
    conn.execute(
        "insert into outbox values (%s, 'Order', 42, '{}'), (%s, 'Order', null, '{}')", [str(identity), str(uuid4())]
    )
    found = written(conn)
    assert [(one.kind, one.key) for one in found] == [("Order", "42"), ("Order", None)]
    assert found[0].message_id == identity


@pytest.mark.parametrize("view", [False, True])
def test_the_application_needs_the_right_to_write_messages(
    conn: Connection, relay_database_url: str, view: bool
) -> None:
    """The trigger runs as whoever inserts: it may meet types, casts and domains of anybody's making."""
    if view:
        conn.execute("drop table outbox; create view outbox as table relay.debezium_outbox")
    else:
        attach(conn)
    application = f"role_{uuid4().hex[:16]}"
    conn.execute(SQL("create role {} login").format(Identifier(application)))
    try:
        conn.execute(SQL("grant insert on outbox to {}").format(Identifier(application)))
        with psycopg.connect(make_conninfo(relay_database_url, user=application), autocommit=True) as theirs:
            theirs.execute("set search_path = ''")
            insert = SQL(INSERT.replace("outbox", "public.outbox"))
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                theirs.execute(insert, [uuid4(), *ONE])
            conn.execute(SQL("grant relay_writer to {}").format(Identifier(application)))
            theirs.execute(insert, [uuid4(), *ONE])
    finally:
        conn.execute(SQL("drop owned by {0}; drop role {0}").format(Identifier(application)))
    assert len(written(conn)) == 1


def test_whoever_writes_to_the_outbox_may_use_the_view_and_the_trigger(
    conn: Connection, relay_database_url: str
) -> None:
    writer = f"role_{uuid4().hex[:16]}"
    conn.execute(SQL("create role {} login in role relay_writer").format(Identifier(writer)))
    try:
        conn.execute(SQL("alter table outbox owner to {}").format(Identifier(writer)))
        with psycopg.connect(make_conninfo(relay_database_url, user=writer), autocommit=True) as theirs:
            attach(theirs)
            theirs.execute(INSERT, [uuid4(), *ONE])
            theirs.execute(INSERT.replace("into outbox", "into relay.debezium_outbox"), [uuid4(), *ONE])
    finally:
        conn.execute(SQL("drop owned by {0}; drop role {0}").format(Identifier(writer)))
    assert len(written(conn)) == 2


def test_json_goes_through_unparsed(conn: Connection) -> None:
    """What jsonb stores is what is sent: its text, to the last digit."""
    attach(conn)
    payload = {"n": 10**30, "deep": [[[]]], "text": 'é "\\ 😀'}
    conn.execute(INSERT, [uuid4(), "Order", "42", "OrderCreated", json.dumps(payload)])
    row = conn.execute("select payload::text from outbox").fetchone()
    assert row
    assert written(conn)[0].payload == row[0]


CONFIGURATION = """
[sinks.orders]
type = "kafka"
order = "key"
envelope = "debezium"
headers = {{ eventType = "{{kind}}" }}
client = {{ "bootstrap.servers" = "{bootstrap}" }}

[[routes]]
kind = "*"
sink = "orders"
"""


def test_from_the_application_s_table_to_kafka(conn: Connection, relay_database_url: str, tmp_path: Path) -> None:
    attach(conn, "before")
    relay = Command(relay_database_url, tmp_path)
    identities = [uuid4() for _ in range(3)]
    with mock_cluster() as bootstrap:
        relay.configure(CONFIGURATION.format(bootstrap=bootstrap))
        relay("apply")
        for identity, payload in zip(identities, ['{"n": 1}', '{"n": 2}', None], strict=True):
            conn.execute(INSERT, [identity, "Order", "42", "OrderCreated", payload])
        relay("run", "--drain")
        found = consumed(bootstrap, 3)
    assert found == [
        Routed("outbox.event.Order", b"42", value, [("id", str(identity).encode()), ("eventType", b"OrderCreated")])
        for identity, value in zip(identities, [b'{"n": 1}', b'{"n": 2}', None], strict=True)
    ]
    assert written(conn) == []
