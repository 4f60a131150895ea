"""Where a message goes: decided by triggers in the writer's own transaction, whatever language it is written in."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from psycopg import Connection
from psycopg.types.json import Jsonb

from relay.admin.apply import reroute
from relay.database.connection import Database
from tests.servers.base import wait_until
from tests.servers.postgres import every_postgres

pytestmark = every_postgres

SINKS = """
insert into relay.sinks (name, shards, hand_over)
values ('emails', 0, null), ('orders', 8, null), ('audit', 0, null), ('sidekiq', 0, 2000000000)
"""
ROUTES = """
insert into relay.routes (kind, sink, lo, hi)
values ('order.*', 'orders', 0, 100),
       ('*.created', 'audit', 0, 100),
       ('Send?', 'emails', 0, 30),
       ('Send?', 'audit', 30, 100),
       ('Job*', 'sidekiq', 0, 100),
       ('a%b_c\\d', 'emails', 0, 100),
       ('it''s $$ $1 $route$ %s', 'emails', 0, 100)
"""


@pytest.fixture
def conn(relay_database_url: str) -> Iterator[Connection]:
    with psycopg.connect(relay_database_url, autocommit=True) as connection:
        connection.execute(SINKS)
        connection.execute(ROUTES)
        yield connection


def insert(conn: Connection, **values: Any) -> int:
    """Insert one message; answer how many rows the database says it inserted."""
    values = {"kind": "x", "payload": "{}", **values}
    names, marks = ", ".join(values), ", ".join(f"%({name})s" for name in values)
    return conn.execute(f"insert into relay.outbox ({names}) values ({marks})".encode(), values).rowcount


def written(conn: Connection, columns: str) -> list[Any]:
    return conn.execute(f"select {columns} from relay.outbox order by id".encode()).fetchall()


@pytest.mark.parametrize(
    ("kind", "sinks"),
    [
        ("order.paid", ["orders"]),
        ("order.created", ["audit", "orders"]),
        ("order.", ["orders"]),
        ("ORDER.paid", ["unrouted"]),
        ("Send", ["unrouted"]),
        ("a%b_c\\d", ["emails"]),
        ("axxbxc\\d", ["unrouted"]),
        ("it's $$ $1 $route$ %s", ["emails"]),
        ("nobody's", ["unrouted"]),
    ],
)
def test_every_route_that_matches_applies(conn: Connection, kind: str, sinks: list[str]) -> None:
    assert insert(conn, kind=kind, key="k", headers=Jsonb({"a": 1}), max_attempts=3, payload='{"a" : 1.0}') == 1
    assert sorted(sink for (sink,) in written(conn, "sink")) == sinks
    [same] = set(written(conn, "kind, key, payload::text, headers::text, max_attempts, message_id, run_at, created_at"))
    assert same[:5] == (kind, "k", '{"a" : 1.0}', '{"a": 1}', 3)


def test_shares_split_by_key_and_a_key_stays_where_it_is(conn: Connection) -> None:
    statement = (
        "insert into relay.outbox (kind, key, payload) select 'Send1', n::text, 'null' from generate_series(1, 2000) n"
    )
    conn.execute(statement)
    first = dict(written(conn, "key, sink"))
    conn.execute("delete from relay.outbox")
    conn.execute(statement)
    assert dict(written(conn, "key, sink")) == first
    shares = Counter(first.values())
    assert 500 < shares["emails"] < 700
    assert shares["emails"] + shares["audit"] == 2000


def test_without_a_key_the_message_id_decides(conn: Connection) -> None:
    conn.execute("insert into relay.outbox (kind, payload) select 'Send1', 'null' from generate_series(1, 2000)")
    found = written(conn, "message_id, sink")
    assert 500 < Counter(sink for _, sink in found)["emails"] < 700
    for message_id, sink in found[:50]:
        insert(conn, kind="Send1", message_id=message_id)
        assert written(conn, "sink")[-1] == (sink,)


def test_without_a_key_the_dedupe_key_decides(conn: Connection) -> None:
    """Else two copies of one job are in two sinks, and neither is found to be a copy."""
    jobs = "select 'Send1', '1', n::text from generate_series(1, 500) n"
    statement = f"insert into relay.outbox (kind, payload, dedupe_key) {jobs}".encode()
    assert conn.execute(statement).rowcount == 500
    assert conn.execute(statement).rowcount == 0
    shares = Counter(sink for (sink,) in written(conn, "sink"))
    assert 100 < shares["emails"] < 200
    insert(conn, kind="Send1", key="k")
    insert(conn, kind="Send1", key="k", dedupe_key="other")
    (first,), (second,) = written(conn, "sink")[-2:]
    assert first == second, "a key stays where it is, whatever the dedupe_key"


def test_what_was_unrouted_goes_by_the_same_buckets(conn: Connection, relay_database_url: str) -> None:
    jobs = (
        "insert into relay.outbox (kind, payload, dedupe_key) select 'Late', '1', n::text from generate_series(1, 99) n"
    )
    routes = (
        "insert into relay.routes (kind, sink, lo, hi) values ('Late', 'emails', 0, 50), ('Late', 'audit', 50, 100)"
    )
    for sql in (jobs, routes, jobs):
        conn.execute(sql.encode())
    expected = conn.execute("select dedupe_key, sink from relay.outbox where sink <> 'unrouted'").fetchall()
    assert len(expected) == 99
    conn.execute("delete from relay.outbox where sink <> 'unrouted'")
    with closing(Database(relay_database_url)) as database:
        assert sum(reroute(database)) == 99
    assert sorted(written(conn, "dedupe_key, sink")) == sorted(expected)


def test_a_key_has_one_shard(conn: Connection) -> None:
    values = "select 'order.x', (n % 100)::text, '1' from generate_series(1, 2000) n"
    conn.execute(f"insert into relay.outbox (kind, key, payload) {values}".encode())
    shards = dict[str, set[int]]()
    for key, shard in written(conn, "key, shard"):
        shards.setdefault(key, set()).add(shard)
    assert all(len(found) == 1 for found in shards.values())
    assert set().union(*shards.values()) == set(range(8))
    insert(conn, kind="order.created", key="7")
    assert set(written(conn, "sink, shard")[-2:]) == {("audit", 0), ("orders", *shards["7"])}


def test_a_sink_that_is_named_skips_the_routes(conn: Connection) -> None:
    insert(conn, kind="order.created", sink="emails")
    insert(conn, kind="order.created", sink="elsewhere")
    insert(conn, kind="x", sink="orders", key="k")
    found = written(conn, "sink, shard")
    assert found[:2] == [("emails", 0), ("elsewhere", 0)]
    insert(conn, kind="order.paid", key="k")
    assert written(conn, "sink, shard")[-1] == found[2]


def test_copy_is_routed_too(conn: Connection) -> None:
    with conn.cursor().copy("copy relay.outbox (kind, key, payload, run_at) from stdin") as copy:
        for row in (
            ("order.created", "1", '{"a" : 1}', None),
            ("JobA", None, "[]", "2060-01-01 00:00Z"),
            ("y", None, "1", None),
        ):
            copy.write_row(row)
    assert sorted(written(conn, "sink, payload::text, run_at is null")) == [
        ("audit", '{"a" : 1}', True),
        ("orders", '{"a" : 1}', True),
        ("sidekiq", "[]", True),
        ("unrouted", "1", True),
    ]


@pytest.mark.parametrize("kind", ["order.created", "nobody's", "order.paid"])
def test_a_time_is_kept_unless_it_has_passed(conn: Connection, kind: str) -> None:
    insert(conn, kind=kind, run_at="2099-01-01 00:00Z")
    assert {year for (year,) in written(conn, "extract(year from run_at at time zone 'UTC')::int")} == {2099}
    conn.execute("delete from relay.outbox")
    insert(conn, kind=kind, run_at="2001-01-01 00:00Z")
    assert {run_at for (run_at,) in written(conn, "run_at")} == {None}


def test_a_sink_that_schedules_itself_gets_the_time_as_a_header(conn: Connection) -> None:
    insert(conn, kind="Job1", run_at="2060-01-01 00:00:00.5Z", headers=Jsonb({"a": 1}))
    insert(conn, kind="Job1", run_at="2001-01-01 00:00Z")
    insert(conn, kind="Job1", run_at="2060-01-01 00:00Z", sink="sidekiq", dedupe_key="d")
    assert written(conn, "run_at, headers") == [
        (None, {"a": 1, "relay.at": 2840140800.5}),
        (None, None),
        (None, {"relay.at": 2840140800}),
    ]


def test_it_gets_no_time_that_is_too_far_off(conn: Connection) -> None:
    conn.execute("update relay.sinks set hand_over = 900 where name = 'sidekiq'")
    for minutes in (14, 16):
        run_at = f"now() + interval '{minutes} minutes'"
        conn.execute(f"insert into relay.outbox (kind, payload, run_at) values ('Job1', '1', {run_at})".encode())
    assert written(conn, "run_at is null, headers is null") == [(True, False), (False, True)]


@pytest.mark.parametrize(
    "sink", ["", ",", "a,", ",a", " a", "a ", "a, b", "A", "emails,,audit", "emails\n", "zoë", "a,b,a", "a,a"]
)
@pytest.mark.parametrize("columns", [{}, {"dedupe_key": "d"}, {"run_at": "2099-01-01 00:00Z"}])
def test_what_is_no_list_of_sinks_is_refused(conn: Connection, sink: str, columns: dict[str, Any]) -> None:
    """Taken literally, it would wait for a sink that nobody can configure. What is refused says what was expected."""
    with pytest.raises(psycopg.errors.CheckViolation, match=r"sink: expected .* got "):
        insert(conn, sink=sink, **columns)
    assert written(conn, "sink") == []


def test_several_sinks_can_be_named(conn: Connection) -> None:
    assert insert(conn, sink="orders,emails", key="k", dedupe_key="d") == 1
    assert insert(conn, sink="orders,emails,audit", key="k", dedupe_key="d") == 1
    assert insert(conn, sink="audit,emails", key="k", dedupe_key="d") == 0
    assert sorted(sink for (sink,) in written(conn, "sink")) == ["audit", "emails", "orders"]


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"kind": ""}, "outbox_kind_check"),
        ({"kind": "k" * 256}, "outbox_kind_check"),
        ({"payload": None}, "payload_or_body"),
        ({"body": b"x"}, "payload_or_body"),
        ({"headers": Jsonb([1])}, "outbox_headers_check"),
        ({"max_attempts": 0}, "outbox_max_attempts_check"),
        ({"dedupe_key": "k" * 1025}, "outbox_dedupe_key_check"),
    ],
)
def test_the_schema_refuses_what_no_sink_could_use(conn: Connection, values: dict[str, Any], error: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match=error):
        insert(conn, **values)


def test_routes_change_under_writers(conn: Connection, relay_database_url: str) -> None:
    """Nobody fails, and from the commit on every writer follows the new routes."""
    stop = threading.Event()
    errors: list[Exception] = []

    def write() -> None:
        try:
            with psycopg.connect(relay_database_url, autocommit=True) as mine:
                while not stop.is_set():
                    insert(mine, kind="flip")
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(20):
        conn.execute("delete from relay.routes where kind = 'flip'")
        conn.execute("insert into relay.routes (kind, sink) values ('flip', %s)", ["audit" if number % 2 else "emails"])
    stop.set()
    for thread in threads:
        thread.join()
    assert errors == []
    insert(conn, kind="flip")
    assert written(conn, "sink")[-1] == ("audit",)
    conn.execute("truncate relay.routes")
    insert(conn, kind="flip")
    assert written(conn, "sink")[-1] == ("unrouted",)


def test_two_changes_of_routes_wait_for_each_other(conn: Connection, relay_database_url: str) -> None:
    with psycopg.connect(relay_database_url) as first, psycopg.connect(relay_database_url) as second:
        first.execute("insert into relay.routes (kind, sink) values ('one', 'emails')")
        waiting = threading.Thread(
            target=second.execute, args=["insert into relay.routes (kind, sink) values ('two', 'audit')"]
        )
        waiting.start()
        query = "select from pg_locks where not granted and locktype = 'advisory'"
        wait_until(lambda: conn.execute(query).fetchall(), what="the second change waiting")
        first.execute("update relay.sinks set shards = 2 where name = 'orders'")
        first.commit()
        waiting.join()
        second.commit()
    insert(conn, kind="one")
    insert(conn, kind="two")
    assert written(conn, "sink") == [("emails",), ("audit",)]
