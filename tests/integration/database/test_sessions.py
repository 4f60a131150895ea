"""What the relay's sessions are like: bounded on both sides, and their own through a pooler too."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing

import psycopg
import pytest

from relay.database.connection import Database
from relay.database.unreadable import headers_of
from relay.errors import DatabaseUnavailable
from sinks.wire import header_text
from tests.servers.base import wait_until
from tests.servers.pgbouncer import run_pgbouncer
from tests.servers.postgres import with_database
from tests.servers.proxy import Direction, FaultProxy


def sessions(url: str, name: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("select count(*) from pg_stat_activity where application_name = %s", [name]).fetchone()
        assert row
        return int(row[0])


def test_a_statement_that_was_given_up_does_not_go_on(database_url: str) -> None:
    """A lock that is held for hours must not collect one waiting session a try."""
    with psycopg.connect(database_url) as holder, closing(Database(database_url, timeout=0.5, name="given up")) as ours:
        holder.execute("create table held ()")
        holder.commit()
        holder.execute("lock table held")
        for _ in range(4):
            with pytest.raises(DatabaseUnavailable):
                ours.query("select from public.held")
        assert sessions(database_url, "given up") <= 1


def test_a_transaction_that_nobody_goes_on_with_keeps_no_locks(database_url: str) -> None:
    """A host that vanished cannot say so, and the server may not hear of it for hours."""
    with closing(Database(database_url, timeout=0.5, name="vanished")) as ours, psycopg.connect(database_url) as other:
        connection = ours.connection()
        connection.execute("begin")
        connection.execute("select pg_advisory_xact_lock(1, 2)")
        other.execute("select pg_advisory_xact_lock(1, 2)")  # as soon as it can be had
        with pytest.raises(DatabaseUnavailable):
            ours.query("select 1")
        assert ours.query("select 1") == [(1,)]


def test_a_server_that_refuses_is_unavailable_however_it_is_asked(database_url: str) -> None:
    """Whatever of ours makes the connection: else the thread that asked would end."""
    with FaultProxy.before(database_url) as proxy:
        proxy.refuse()
        with closing(Database(proxy.url(database_url), timeout=0.5)) as ours:
            with pytest.raises(DatabaseUnavailable):
                ours.connection()
            with pytest.raises(DatabaseUnavailable):
                _ = ours.encoding
            with pytest.raises(DatabaseUnavailable), ours.transaction():
                pass
        proxy.resume()


def test_a_silent_server_is_given_up_in_time(database_url: str) -> None:
    with FaultProxy.before(database_url) as proxy:
        with closing(Database(proxy.url(database_url), timeout=0.5, name="silent")) as ours:
            ours.query("select 1")
            proxy.stall(Direction.TO_CLIENT)
            started = time.monotonic()
            with pytest.raises(DatabaseUnavailable, match="in time"), ours.transaction() as connection:
                connection.execute("select 1")
            assert time.monotonic() - started < 5
            proxy.resume()
            assert ours.query("select 2") == [(2,)]
    wait_until(lambda: sessions(database_url, "silent") == 0)


@pytest.mark.parametrize(("theirs", "expected"), [("0", "900ms"), ("250ms", "250ms"), ("1h", "900ms")])
def test_the_stricter_time_out_counts(database_url: str, theirs: str, expected: str) -> None:
    database = database_url.rpartition("/")[2]
    with psycopg.connect(database_url, autocommit=True) as connection:
        for name in ("statement_timeout", "idle_in_transaction_session_timeout"):
            connection.execute(f"alter database {database} set {name} = '{theirs}'".encode())
    with closing(Database(database_url, timeout=1.0)) as ours:
        assert ours.query("show statement_timeout") == [(expected,)]
        assert ours.query("show idle_in_transaction_session_timeout") == [(expected,)]
        assert not ours.pooled


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_text_arrives_as_utf8_whatever_the_encoding_of_the_database(postgres: str, encoding: str) -> None:
    name = f"test_{encoding.lower()}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"create database {name} template template0 encoding '{encoding}' locale 'C'".encode())
    try:
        with closing(Database(with_database(postgres, name))) as ours:
            assert ours.query("""select '{"zoë": 1}'::json""") == [('{"zoë": 1}'.encode(),)]
    finally:
        with psycopg.connect(postgres, autocommit=True) as connection:
            connection.execute(f"drop database {name} with (force)".encode())


def test_numbers_in_headers_keep_their_digits_and_payloads_stay_bytes(database_url: str) -> None:
    with closing(Database(database_url)) as database, database.transaction() as conn:
        row = conn.execute("select '{\"price\": 1.10}'::jsonb, '[1.10 ]'::json", binary=True).fetchone()
        assert row is not None
        assert (header_text(headers_of(row[0])), row[1]) == ('{"price":1.10}', b"[1.10 ]")


ODD = {
    "synchronous_commit": "off",
    "search_path": "''",
    "standard_conforming_strings": "off",
    "array_nulls": "off",
    "default_transaction_isolation": "serializable",
}
"""Settings that a role or a database may have, and that the meaning or the worth of a statement depends on."""
OURS = {
    "synchronous_commit": "on",
    "search_path": "pg_catalog,pg_temp",
    "standard_conforming_strings": "on",
    "array_nulls": "on",
    "transaction_isolation": "read committed",
}


@pytest.mark.parametrize("way", ["direct", pytest.param("pooled", marks=pytest.mark.full)])
def test_a_session_sets_what_its_statements_rely_on(database_url: str, way: str) -> None:
    """In each transaction where a pooler is in between: its next one may be on another server connection."""
    database = database_url.rpartition("/")[2]
    with psycopg.connect(database_url, autocommit=True) as connection:
        for name, value in ODD.items():
            connection.execute(f"alter database {database} set {name} = {value}".encode())
    with ExitStack() as stack:
        pooled = way == "pooled"
        url = stack.enter_context(run_pgbouncer("1.24", database_url))[0] if pooled else database_url
        ours = stack.enter_context(closing(Database(url)))
        for name, value in OURS.items():
            assert ours.query(f"select current_setting('{name}')") == [(value,)]
            with ours.transaction() as connection:
                assert connection.execute(f"select current_setting('{name}')").fetchone() == (value,)
        assert ours.run("select") == 1
        assert ours.pooled is pooled
