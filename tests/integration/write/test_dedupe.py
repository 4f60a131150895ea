"""While a message with a dedupe_key is live, a second one for the same sink does nothing, and says so."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import Connection

from relay import enqueue
from tests.servers.base import wait_until
from tests.servers.postgres import every_postgres

pytestmark = every_postgres

ENQUEUE = "select relay.enqueue('Send', '[1]', dedupe_key => 'd')"


@pytest.fixture
def conn(relay_database_url: str) -> Iterator[Connection]:
    with psycopg.connect(relay_database_url, autocommit=True) as connection:
        connection.execute("insert into relay.sinks (name) values ('emails'), ('audit')")
        connection.execute("insert into relay.routes (kind, sink) values ('*', 'emails'), ('both', 'audit')")
        yield connection


def written(conn: Connection, columns: str) -> list[Any]:
    return conn.execute(f"select {columns} from relay.outbox order by id".encode()).fetchall()


def value(conn: Connection, statement: str) -> Any:
    [(answer,)] = conn.execute(statement.encode()).fetchall()
    return answer


def test_the_function_answers_null(conn: Connection) -> None:
    assert isinstance(value(conn, ENQUEUE), UUID)
    assert value(conn, ENQUEUE) is None
    conn.execute("delete from relay.outbox")
    assert isinstance(value(conn, ENQUEUE), UUID)


def test_a_plain_insert_of_a_duplicate_inserts_nothing(conn: Connection) -> None:
    statement = "insert into relay.outbox (kind, payload, dedupe_key) values ('Send', '1', 'd')"
    assert conn.execute(statement).rowcount == 1
    assert conn.execute(statement).rowcount == 0
    assert (
        conn.execute(f"{statement}, ('Send', '2', 'd'), ('Send', '3', 'e'), ('Send', '4', 'e')".encode()).rowcount == 1
    )
    assert written(conn, "payload::text") == [("1",), ("3",)]


def test_a_duplicate_is_one_of_a_sink(conn: Connection) -> None:
    assert isinstance(value(conn, ENQUEUE), UUID)
    both = value(conn, "select relay.enqueue('both', '[2]', dedupe_key => 'd')")
    assert isinstance(both, UUID)
    assert written(conn, "sink, payload::text") == [("emails", "[1]"), ("audit", "[2]")]
    assert value(conn, "select relay.enqueue('both', '[3]', dedupe_key => 'd')") is None
    assert isinstance(value(conn, "select relay.enqueue('both', '[4]', dedupe_key => 'e')"), UUID)
    assert sorted(written(conn, "sink, payload::text")[2:]) == [("audit", "[4]"), ("emails", "[4]")]


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_a_second_writer_waits_for_the_first(conn: Connection, relay_database_url: str, ends: str) -> None:
    with psycopg.connect(relay_database_url) as first, psycopg.connect(relay_database_url) as second:
        assert isinstance(value(first, ENQUEUE), UUID)
        answers: list[Any] = []
        waiting = threading.Thread(target=lambda: answers.append(value(second, ENQUEUE)))
        waiting.start()
        wait_until(lambda: conn.execute("select from pg_locks where not granted").fetchall(), what="the second waiting")
        getattr(first, ends)()
        waiting.join()
        second.commit()
    assert [answer is None for answer in answers] == [ends == "commit"]
    assert len(written(conn, "id")) == 1


def test_of_many_writers_one_wins(conn: Connection, relay_database_url: str) -> None:
    def write(_: int) -> list[UUID | None]:
        with psycopg.connect(relay_database_url, autocommit=True) as mine:
            return [enqueue(mine, "both", [], dedupe_key=str(n), require_transaction=False) for n in range(50)]

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(write, range(6)))
    for column in zip(*answers, strict=True):
        assert sum(answer is not None for answer in column) >= 1
    assert sorted(written(conn, "sink, dedupe_key::int")) == [(s, n) for s in ("audit", "emails") for n in range(50)]


INSERT = "insert into relay.outbox (kind, payload, dedupe_key) values ({}, '1', '{}') on conflict do nothing"


@pytest.mark.parametrize("kind", ["'Send'", "'both'"])
@pytest.mark.parametrize("write", ["select relay.enqueue({}, '[1]', dedupe_key => '{}')", INSERT])
def test_serializable_writers_of_different_keys_do_not_conflict(relay_database_url: str, write: str, kind: str) -> None:
    """Reading an index counts as reading whole pages of it. So would reading anything else that such writers change."""
    conn = psycopg.connect(relay_database_url, autocommit=True)
    conn.execute("insert into relay.sinks (name, hand_over) values ('emails', 900), ('audit', null)")
    conn.execute("insert into relay.routes (kind, sink) values ('*', 'emails'), ('both', 'audit')")
    conn.execute("insert into relay.relays (worker, idle_until) values ('idle', now() + interval '1 hour')")
    with conn, psycopg.connect(relay_database_url) as one, psycopg.connect(relay_database_url) as other:
        for writer in (one, other):
            writer.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        for number in range(20):
            # In turns: what one has looked at, the other writes to, and the other way round.
            for turn in range(2):
                for side, writer in enumerate((one, other)):
                    writer.execute(write.format(kind, f"{number}-{side}-{turn}").encode())
            one.commit()
            other.commit()
        assert len(written(conn, "id")) == (160 if kind == "'both'" else 80)


def test_a_serializable_writer_s_duplicate_is_none_the_less_found(conn: Connection, relay_database_url: str) -> None:
    with psycopg.connect(relay_database_url) as writer:
        writer.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        assert isinstance(value(writer, ENQUEUE), UUID)
        assert value(writer, ENQUEUE) is None
        writer.commit()
        assert value(writer, ENQUEUE) is None
        assert writer.execute(INSERT.format("'Send'", "d").encode()).rowcount == 0
        with pytest.raises(psycopg.errors.UniqueViolation), writer.transaction():
            writer.execute("insert into relay.outbox (kind, payload, dedupe_key) values ('Send', '1', 'd')")
    assert len(written(conn, "id")) == 1


@pytest.mark.parametrize("level", [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE])
def test_a_key_that_was_written_after_the_snapshot_is_to_be_tried_again(
    conn: Connection, relay_database_url: str, level: psycopg.IsolationLevel
) -> None:
    """The transaction cannot see what it collides with: once more, it finds the duplicate."""
    with psycopg.connect(relay_database_url) as writer:
        writer.isolation_level = level
        writer.execute("select 1")
        assert isinstance(value(conn, ENQUEUE), UUID)
        with pytest.raises(psycopg.errors.SerializationFailure):
            value(writer, ENQUEUE)
        writer.rollback()
        assert value(writer, ENQUEUE) is None


def test_a_look_for_a_duplicate_stays_cheap(conn: Connection) -> None:
    """A session keeps the plan that it made while the table was empty."""
    explain = """explain (analyze, buffers, format json)
        insert into relay.outbox (kind, payload, dedupe_key)
        select 'both', '1', n::text from generate_series(%s::int, %s::int) n"""

    def pages(first: int) -> int:
        [(plan,)] = conn.execute(explain, [first, first + 199]).fetchall()
        hits: int = plan[0]["Plan"]["Shared Hit Blocks"]
        return hits

    conn.execute("alter table relay.outbox set (autovacuum_enabled = off)")
    conn.execute("vacuum analyze relay.outbox")
    pages(0)
    counts = [pages(first) for first in range(200, 6000, 200)]
    assert counts[-1] < 1.5 * counts[0]
