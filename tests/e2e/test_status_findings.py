"""What `relay status --check` finds in the database, one test each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import Connection

from tests.command import Command, configured


@pytest.fixture
def relay(relay_database_url: str, tmp_path: Path) -> Command:
    return configured(relay_database_url, tmp_path)


@pytest.fixture
def conn(relay_database_url: str) -> Iterator[Connection]:
    with psycopg.connect(relay_database_url, autocommit=True) as connection:
        yield connection


def findings(relay: Command) -> str:
    """The line that names them; empty where there is none."""
    done = relay.run("status", "--check")
    assert done.returncode == (3 if done.stderr else 0), done.stderr
    return done.stderr


def test_blocked_keys(relay: Command, conn: Connection) -> None:
    """A key whose next attempt has a time waits for no operator. The same must hold where its dead message was
    discarded: nothing but this finding would tell of the messages behind it."""
    conn.execute(
        "insert into relay.stuck_keys (sink, key_hash, key, upto, retry_at, reason, since) values "
        "('orders', 1, 'a', 1, null, 'refused: 100%', '2026-01-31 12:00Z'), ('orders', 2, 'b', 1, null, 'no', now()), "
        "('orders', 3, 'c', 1, now() + interval '1 hour', 'time-out', now())"
    )
    assert (
        'sink "orders", keys blocked until released: 2, the first since 2026-01-31 12:00:00 UTC (refused: 100%): '
        "relay keys blocked --sink orders" in findings(relay)
    )
    conn.execute("delete from relay.stuck_keys where retry_at is null")
    assert findings(relay) == ""


@pytest.mark.parametrize(
    ("routes", "found"),
    [
        ([("x", 0, 40), ("x", 60, 100)], "[40, 60]"),
        ([("x", 10, 50)], "[0, 10], [50, 100]"),
        ([("x", 0, 50), ("x*", 50, 100)], "[0, 50]"),
        ([("x.*", 0, 50), ("*", 0, 100)], None),
        ([("x", 0, 50), ("y", 50, 100)], "[50, 100]"),
        ([("a%", 0, 50), ("ab", 0, 100)], "[50, 100]"),
    ],
)
def test_shares_with_gaps(
    relay: Command, conn: Connection, routes: list[tuple[str, int, int]], found: str | None
) -> None:
    """Where every bucket has a route, by this pattern or by a wider one, there is no gap."""
    conn.execute("delete from relay.routes")
    conn.cursor().executemany("insert into relay.routes (kind, sink, lo, hi) values (%s, 'emails', %s, %s)", routes)
    text = findings(relay)
    assert f"leave buckets out: {found};" in text if found else text == ""


def test_a_statement_that_is_refused_is_a_finding(relay: Command, conn: Connection) -> None:
    """A monitor whose role lost a grant must not say that all is well."""
    conn.execute("alter table relay.stuck_keys rename column since to since_when")
    assert "could not look for blocked keys" in findings(relay)


def test_nothing_is_found_in_a_new_database(relay: Command) -> None:
    assert findings(relay) == ""
