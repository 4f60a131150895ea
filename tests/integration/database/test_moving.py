"""`docs/moving.md`, followed: from PostgreSQL 15 to 18 by logical replication while relays run, by dump and restore, by
data alone.

The same goes wrong with every tool that copies rows and not what belongs to them: a fork of a managed database, a
change-data pipeline into a new one, a restore of some tables.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.command import Command
from tests.harness.outbox import Outbox
from tests.harness.scripted import ScriptedBroker
from tests.servers.base import wait_until
from tests.servers.postgres import PostgresCluster, find_programs, migrate, new_cluster, new_database

pytestmark = pytest.mark.full

PAGE = (Path(__file__).parents[3] / "docs" / "moving.md").read_text(encoding="utf-8")
STATEMENTS = [block.strip() for block in re.findall(r"^ *```sql\n(.*?)```", PAGE, flags=re.DOTALL | re.MULTILINE)]
BEFORE, AFTER = STATEMENTS


def run(program: str, *args: str | Path) -> None:
    done = subprocess.run([find_programs(18) / program, *args], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def execute(url: str, text: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        for statement in re.sub("--.*", "", text).split(";"):
            if statement.strip():
                conn.execute(statement.encode())


@contextmanager
def clusters() -> Iterator[tuple[PostgresCluster, PostgresCluster]]:
    with new_cluster(15) as old, new_cluster(18) as new:
        with old.run(wal_level="logical"), new.run():
            yield old, new


def fill(outbox: Outbox) -> None:
    """Something of everything: scheduled, dead, without a route, delivered."""
    outbox.broker.script(kinds={"bad": "reject"})
    outbox.insert(50, key="k")
    outbox.insert(2, kind="bad")
    outbox.wait_until_empty()
    outbox.insert(3, run_at="2099-01-01")
    outbox.sql("insert into relay.outbox (sink, kind, payload) values ('unrouted', 'x', '{}')")


def rows(outbox: Outbox) -> list[tuple[object, ...]]:
    """Every message, live or dead, with what it needs to go on."""
    columns = "id, sink, shard, kind, key, payload::text, message_id"
    return outbox.sql(f"select {columns} from relay.outbox union all select {columns} from relay.dead order by 1")


def check(outbox: Outbox) -> None:
    """New messages are routed, in order behind what is there, and delivered."""
    highest = max(int(str(row[0])) for row in rows(outbox))
    with outbox.relay():
        ids = outbox.insert(20, key="k")
        wait_until(lambda: outbox.count("run_at is null and sink <> 'unrouted'") == 0, what="delivery")
    assert min(ids) > highest
    assert set(ids) <= set(outbox.broker.copies())
    found = outbox.run_relay("status", "--check", "--max-dead", "9").stderr
    assert "compiled" not in found
    assert "ids below" not in found


def test_logical_replication_from_15_to_18(tmp_path: Path) -> None:
    broker = ScriptedBroker(tmp_path / "broker")
    broker.folder.mkdir()
    with clusters() as (old, new):
        migrate(old.url())
        before, after = (Outbox(cluster.url(), tmp_path, broker) for cluster in (old, new))
        before.configure({"main": {"order": "key", "shards": 4}})
        run("pg_dumpall", "--roles-only", "--no-role-passwords", "-d", old.url(), "-f", tmp_path / "roles.sql")
        run("pg_dump", "--schema-only", "-f", tmp_path / "schema.sql", old.url())
        run("psql", "-q", "-f", tmp_path / "roles.sql", new.url())
        run("psql", "-q", "-v", "ON_ERROR_STOP=1", "-f", tmp_path / "schema.sql", new.url())
        execute(new.url(), BEFORE)
        with before.relay():
            fill(before)
            execute(old.url(), "create publication upgrade for all tables")
            source = make_conninfo(old.url())
            execute(new.url(), f"create subscription upgrade connection '{source}' publication upgrade")
            wait_until(
                lambda: after.sql("select count(*) from pg_subscription_rel where srsubstate <> 'r'") == [(0,)],
                timeout=60,
                what="the tables being copied",
            )
            before.insert(200, key="k")
            wait_until(
                lambda: before.count("run_at is null and sink <> 'unrouted'") == 0, what="the old server's queue"
            )
        before.insert(7, key="k")
        arrived = (
            "select pg_current_wal_lsn() <= replay_lsn from pg_stat_replication where application_name = 'upgrade'"
        )
        assert arrived.split(" from ", maxsplit=1)[0] in PAGE
        wait_until(lambda: before.sql(arrived) == [(True,)], timeout=60, what="everything being received")
        execute(new.url(), AFTER)
        assert rows(after) == rows(before)
        finish(after, before)


def finish(after: Outbox, before: Outbox) -> None:
    after.environment = {**before.environment, "RELAY_DATABASE_URL": after.url}
    after.environment["RELAY_DATABASE"] = before.environment["RELAY_DATABASE"].replace(before.url, after.url)
    for command in ("migrate", "apply"):
        done = after.run_relay(command)
        assert done.returncode == 0, done.stderr
    after.broker.forget()
    check(after)


def test_dump_and_restore(postgres: str, outbox: Outbox, tmp_path: Path) -> None:
    outbox.configure({"main": {"order": "key", "shards": 4}})
    with outbox.relay():
        fill(outbox)
    with new_database(postgres) as url:
        run("pg_dump", "-Fc", "-f", tmp_path / "app.dump", outbox.url)
        run("pg_restore", "-d", url, tmp_path / "app.dump")
        after = Outbox(url, tmp_path, outbox.broker)
        assert rows(after) == rows(outbox)
        assert after.sql("select * from relay.restored") == [(False, False)]
        finish(after, outbox)


def test_data_alone(postgres: str, outbox: Outbox, tmp_path: Path) -> None:
    outbox.configure({"main": {"order": "key", "shards": 4}})
    with outbox.relay():
        fill(outbox)
    with new_database(postgres) as url:
        only = ("--data-only", "--exclude-table-data", "relay.migrations")
        run("pg_dump", "-Fc", *only, "-f", tmp_path / "data.dump", outbox.url)
        Command(url, tmp_path)("migrate")
        run("pg_restore", "--data-only", "--disable-triggers", "-d", url, tmp_path / "data.dump")
        after = Outbox(url, tmp_path, outbox.broker)
        assert rows(after) == rows(outbox)
        assert after.sql("select is_uncompiled from relay.restored") == [(True,)]
        finish(after, outbox)
