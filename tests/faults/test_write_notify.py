"""NOTIFY: what makes a writer's commit wait or fail must be small, rare and can be switched off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest
from psycopg import Connection

from relay import Event, enqueue, publish, publish_many
from tests.servers.postgres import every_postgres, migrate, new_cluster, new_database

IDLE = "insert into relay.relays (worker, idle_until) values ('idle', now() + interval '1 hour')"
BUSY = "update relay.relays set idle_until = now() - interval '1 second'"


@pytest.fixture
def conn(relay_database_url: str) -> Iterator[Connection]:
    with psycopg.connect(relay_database_url) as connection:
        yield connection


@pytest.fixture
def listener(relay_database_url: str) -> Iterator[Connection]:
    with psycopg.connect(relay_database_url, autocommit=True) as connection:
        connection.execute("listen relay")
        yield connection


def heard(listener: Connection) -> list[str]:
    """The payloads of what has arrived; whatever was committed before arrives before the answer to this."""
    listener.execute("notify relay, 'end'")
    payloads: list[str] = []
    for notification in listener.notifies(timeout=5):
        if notification.payload == "end":
            return payloads
        payloads.append(notification.payload)
    raise AssertionError("nothing arrives")


@every_postgres
def test_only_a_relay_that_waits_is_woken(conn: Connection, listener: Connection) -> None:
    publish(conn, "nobody is there", 1)
    conn.commit()
    assert heard(listener) == []
    listener.execute(IDLE)
    publish(conn, "rolled back", 1)
    conn.rollback()
    assert heard(listener) == []
    publish(conn, "one", 1)
    enqueue(conn, "two", 1, dedupe_key="d")
    conn.commit()
    assert heard(listener) == [""]
    listener.execute(BUSY)
    publish(conn, "it polls", 1)
    conn.commit()
    assert heard(listener) == []


@every_postgres
def test_a_setting_switches_it_off(conn: Connection, listener: Connection) -> None:
    listener.execute(IDLE)
    conn.execute("set relay.notify = 'off'")
    publish(conn, "k", 1)
    conn.commit()
    assert heard(listener) == []
    conn.execute("reset relay.notify")
    publish(conn, "k", 1)
    conn.commit()
    assert heard(listener) == [""]


@every_postgres
def test_a_notification_holds_nothing_that_grows_with_the_data(conn: Connection, listener: Connection) -> None:
    listener.execute(IDLE)
    conn.execute("insert into relay.sinks (name, shards) values ('a', 0), ('b', 8)")
    conn.execute("insert into relay.routes (kind, sink) values ('*', 'a'), ('*', 'b')")
    publish(conn, "large", {"text": "x" * 9000}, key="k" * 8100, headers={"h": "x" * 9000})
    enqueue(conn, "large", ["x" * 9000], key="k" * 8100, dedupe_key="d" * 1024)
    publish_many(conn, [Event("many", number, key="k" * 8100) for number in range(2000)])
    statement = "insert into relay.outbox (kind, payload) select 'plain', '1' from generate_series(1, 2000)"
    conn.execute(statement)
    conn.commit()
    assert heard(listener) == [""]
    assert conn.execute("select count(*) from relay.outbox").fetchone() == (2 * 4002,)


@pytest.fixture(scope="module")
def small_queue() -> Iterator[str]:
    """URL of a server whose queue of notifications is soon full."""
    with new_cluster(18) as cluster, cluster.run(max_notify_queue_pages=64):
        yield cluster.url()


def test_a_full_queue_of_notifications(small_queue: str) -> None:
    with new_database(small_queue) as url:
        migrate(url)
        with psycopg.connect(url) as stuck, psycopg.connect(url) as conn:
            stuck.execute("listen relay")
            stuck.commit()
            stuck.execute("select 1")  # and nothing more: it stays in its transaction
            with suppress(psycopg.Error):
                while True:
                    conn.execute("select pg_notify('other', repeat('x', 7900) || n) from generate_series(1, 20) n")
                    conn.commit()
            conn.rollback()
            for number in range(200):
                publish(conn, "nobody waits", number)
                conn.commit()
            conn.execute(IDLE)
            conn.commit()
            publish(conn, "somebody waits", 1)
            with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="too many notifications in the NOTIFY queue"):
                conn.commit()
            conn.rollback()
            conn.execute(f"alter database {conn.info.dbname} set relay.notify = 'off'".encode())
            conn.commit()
            with psycopg.connect(url) as fresh:
                publish(fresh, "switched off", 1)
            assert conn.execute("select count(*) from relay.outbox").fetchone() == (201,)
