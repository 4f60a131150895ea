"""The queue of notifications is full: without NOTIFY every insert succeeds, and the relay does not need it."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from psycopg import errors

from tests.harness.outbox import Outbox
from tests.harness.scripted import ScriptedBroker
from tests.servers.base import wait_until
from tests.servers.postgres import migrate, new_cluster

FILL = "select pg_notify('other', repeat('x', 7000) || n) from generate_series(1, 40) n"


def fill_up(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    def fill() -> None:
        for _ in range(1000):
            connection.execute(FILL)

    with pytest.raises(errors.ProgramLimitExceeded):
        fill()


def test_inserts_succeed_where_nobody_asked_for_notifications(tmp_path: Path) -> None:
    folder = tmp_path / "broker"
    folder.mkdir()
    with new_cluster(18) as cluster, cluster.run(max_notify_queue_pages=64):
        outbox = Outbox(cluster.url(), tmp_path, ScriptedBroker(folder))
        migrate(outbox.url)
        outbox.configure(database={"notify": False})
        with psycopg.connect(outbox.url) as deaf, psycopg.connect(outbox.url, autocommit=True) as other:
            deaf.execute("listen other")
            deaf.commit()
            deaf.execute("select 1")
            fill_up(other)
            with outbox.relay():
                ids = outbox.insert(50)
                outbox.wait_until_empty(timeout=10)
                assert outbox.broker.copies() == dict.fromkeys(ids, 1)


def test_the_relays_own_probe_does_not_end_it(tmp_path: Path) -> None:
    folder = tmp_path / "broker"
    folder.mkdir()
    with new_cluster(18) as cluster, cluster.run(max_notify_queue_pages=64):
        outbox = Outbox(cluster.url(), tmp_path, ScriptedBroker(folder))
        migrate(outbox.url)
        outbox.configure()
        with psycopg.connect(outbox.url) as deaf, psycopg.connect(outbox.url, autocommit=True) as other:
            deaf.execute("listen other")
            deaf.commit()
            deaf.execute("select 1")
            fill_up(other)
            with outbox.relay() as relay:
                wait_until(lambda: relay.events("notifications do not arrive; polling"))
                ids = outbox.insert(50)
                outbox.wait_until_empty(timeout=10)
                assert relay.healthy()
                assert relay.ready()
                deaf.close()
                wait_until(lambda: relay.metric("relay_listener_up") == 1, timeout=15)
            assert outbox.broker.copies() == dict.fromkeys(ids, 1)


def test_the_listener_never_sits_in_a_transaction(outbox: Outbox) -> None:
    outbox.configure()
    with outbox.relay() as relay:
        wait_until(lambda: relay.metric("relay_listener_up") == 1)
        sessions = outbox.sql(
            "select state, xact_start from pg_stat_activity"
            " where datname = current_database() and application_name like 'outbox-relay listener%'"
        )
        assert sessions == [("idle", None)]


@pytest.mark.parametrize(
    "write",
    [
        "insert into relay.outbox (kind, payload) values ('big', to_json(repeat('x', 9000)))",
        "insert into relay.outbox (kind, payload, key) values ('big', '1', repeat('k', 8100))",
        "insert into relay.outbox (kind, payload) select 'many', '1' from generate_series(1, 2000)",
    ],
)
def test_a_notification_holds_nothing_that_grows(outbox: Outbox, write: str) -> None:
    outbox.configure()
    with outbox.relay() as relay:
        wait_until(lambda: relay.metric("relay_listener_up") == 1)
        wait_until(lambda: outbox.count("idle_until > clock_timestamp()", table="relays") == 1)
        outbox.sql(write)
        outbox.wait_until_empty()
