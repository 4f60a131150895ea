"""Publications: a queue in a database that is replicated, by whatever publication, made before the relays or while they
run.

The same goes wrong wherever PostgreSQL asks what a row is known by: a publication for all tables, for a schema, for one
table, with a filter of rows, with a list of columns; on any table of the schema, also one that a later release adds.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest

from tests.harness.observer import observed_writer
from tests.harness.outbox import Outbox
from tests.servers.base import wait_until
from tests.servers.postgres import every_postgres, migrate, new_database

pytestmark = pytest.mark.full

PUBLICATIONS = {
    "everything": "for all tables",
    "the schema": "for tables in schema relay",
    "one table": "for table relay.outbox",
    "some rows": "for table relay.outbox where (kind <> 'x'), relay.claims where (worker <> 'x'), "
    "relay.relays where (seen_at > '2000-01-01')",
}


@every_postgres
@pytest.mark.parametrize("ordered", [False, True], ids=["rows", "shards"])
def test_nothing_stops_when_a_publication_is_made_while_relays_run(outbox: Outbox, ordered: bool) -> None:
    order = {"order": "key", "shards": 4} if ordered else {}
    outbox.configure({"main": {**order, "lease": "4s"}})
    with outbox.relay() as relay:
        outbox.insert(50, key="a")
        outbox.wait_until_empty()
        for name, tables in PUBLICATIONS.items():
            outbox.sql(f"create publication p {tables}")
            outbox.insert(50, key="a")
            outbox.wait_until_empty()
            assert outbox.sql("select is_full from relay.identities where name = 'outbox'") == [(True,)], name
            outbox.sql("drop publication p")
            migrate(outbox.url)
            assert outbox.sql("select name from relay.identities where is_full") == [], name
        assert relay.metric("relay_lease_lost_total") == 0
    assert len(outbox.broker.deliveries()) == 50 * (1 + len(PUBLICATIONS)), "nothing was sent twice"


@every_postgres
def test_a_table_that_is_locked_at_that_moment_delays_and_loses_no_claim(outbox: Outbox) -> None:
    """A long transaction of a writer keeps the identity from being set. What is claimed stays claimed meanwhile."""
    outbox.configure({"main": {"lease": "2s", "batch_messages": 5}})
    with outbox.relay() as relay, psycopg.connect(outbox.url) as writer:
        writer.execute("insert into relay.outbox (kind, payload) values ('made', '{}')")
        outbox.sql("create publication p for all tables")
        outbox.insert(20)
        wait_until(lambda: _says_who_locks(relay.events(), writer), timeout=20, what="the relay naming the writer")
        writer.commit()
        outbox.wait_until_empty()
        assert relay.metric("relay_lease_lost_total") == 0
    assert len(outbox.broker.deliveries()) == 21


def _says_who_locks(events: list[dict[str, object]], writer: psycopg.Connection) -> bool:
    return any(f"process {writer.info.backend_pid}" in str(event.get("by")) for event in events)


@every_postgres
def test_every_table_of_the_schema_takes_updates_and_deletes(relay_database_url: str) -> None:
    with psycopg.connect(relay_database_url, autocommit=True) as conn:
        conn.execute("create publication p for all tables")
        while conn.execute("select relay.set_identities()").fetchone() != (None,):
            pass
        tables = [str(row[0]) for row in conn.execute("select name from relay.identities").fetchall()]
        assert {"outbox", "claims", "dead", "stuck_keys", "relays", "sinks", "routes", "migrations"} <= set(tables)
        for table in tables:
            for change in (f"delete from relay.{table} where false", *_update(conn, table)):
                conn.execute(change.encode())


def _update(conn: psycopg.Connection, table: str) -> Iterator[str]:
    for (column,) in conn.execute(
        "select attname::text from pg_attribute where attrelid = ('relay.' || %s)::regclass and attnum > 0"
        " and attgenerated = '' and attidentity = '' and not attisdropped",
        [table],
    ).fetchall():
        yield f"update relay.{table} set {column} = {column} where false"


@every_postgres
def test_one_that_was_there_before_the_schema(postgres: str) -> None:
    with new_database(postgres) as url, psycopg.connect(url, autocommit=True) as conn:
        conn.execute("create publication p for all tables")
        migrate(url)
        conn.execute("delete from relay.outbox")
        conn.execute("delete from relay.claims")


def test_writers_lose_little_while_the_identity_waits_for_a_lock(outbox: Outbox) -> None:
    """Four relays want the lock that one transaction keeps from them; another writer goes on meanwhile."""
    outbox.configure()
    stop = threading.Event()
    tries: list[bool] = []

    def want() -> None:
        with psycopg.connect(outbox.url, autocommit=True) as conn:
            while not stop.wait(0.05):
                row = conn.execute("select relay.set_identities()").fetchone()
                tries.append(row == (False,))

    threads = [threading.Thread(target=want) for _ in range(4)]
    with psycopg.connect(outbox.url) as holder, observed_writer(outbox.url) as observed:
        holder.execute("insert into relay.outbox (kind, payload) values ('made', '{}')")
        outbox.sql("create publication p for all tables")
        for thread in threads:
            thread.start()
        wait_until(lambda: sum(tries) >= 3, timeout=60, what="three tries to get the lock")
        stop.set()
        for thread in threads:
            thread.join()
    assert 0 < observed.share < 0.2


@every_postgres
def test_commands_need_no_relay_for_it(outbox: Outbox) -> None:
    outbox.configure({"main": {"order": "key", "shards": 4}}, routes=[{"kind": "other", "sink": "main"}])
    outbox.insert(9, key="a", sink="main")
    outbox.insert(5)
    outbox.sql("create publication p for all tables")
    done = outbox.run_relay("reshard", "main", "7", "--yes")
    assert done.returncode == 0, done.stderr
    outbox.sql("alter table relay.outbox replica identity default")
    outbox.configure({"main": {"order": "key", "shards": 7}}, routes=[{"kind": "made", "sink": "main"}])
    done = outbox.run_relay("apply", "--yes")
    assert done.returncode == 0, done.stderr
    assert "routed 5 messages" in done.stdout
