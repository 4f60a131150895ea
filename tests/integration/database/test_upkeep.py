"""What stands around the schema and is changed by others: data restored without triggers or sequences, row security,
roles made later, publications. `relay apply` and `relay migrate` repair it, `relay status --check` finds it.

The same goes wrong with whatever PostgreSQL keeps beside tables and whoever restores, replicates or secures a database
leaves out or adds: comments, owners, policies, a function that somebody replaced by hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier

from tests.command import Command, configured
from tests.harness.outbox import Outbox
from tests.servers.base import wait_until

pytestmark = pytest.mark.full


@pytest.fixture
def relay(relay_database_url: str, tmp_path: Path) -> Command:
    return configured(relay_database_url, tmp_path)


@pytest.fixture
def conn(relay: Command) -> Iterator[psycopg.Connection]:
    with psycopg.connect(relay.url, autocommit=True) as connection:
        yield connection


def check(relay: Command) -> str:
    """What `status --check` says beside the table."""
    done = relay.run("status", "--check")
    assert done.returncode in (0, 3), done.stderr
    return done.stderr


def sink_of_a_new_message(conn: psycopg.Connection) -> str:
    row = conn.execute("insert into relay.outbox (kind, payload) values ('SendX', '{}') returning sink").fetchone()
    assert row is not None
    return str(row[0])


def without_triggers(conn: psycopg.Connection, *statements: str) -> None:
    with conn.transaction():
        conn.execute("set local session_replication_role = replica")
        for text in statements:
            conn.execute(text.encode())


def test_routes_that_were_restored_without_triggers(relay: Command, conn: psycopg.Connection) -> None:
    assert "compiled" not in check(relay)
    without_triggers(conn, "update relay.routes set sink = 'orders' where sink = 'emails'")
    assert sink_of_a_new_message(conn) == "emails"
    assert "routes are in the database, but not compiled" in check(relay)

    without_triggers(conn, "update relay.routes set sink = 'emails' where kind = 'Send*'", "delete from relay.sinks")
    without_triggers(conn, "insert into relay.sinks (name, shards) values ('emails', 0), ('orders', 4)")
    relay.configure((relay.folder / "relay.toml").read_text().replace("shards = 8", "shards = 4"))
    assert "to repair: routes are in the database, but not compiled" in relay("apply", "--dry-run")
    assert "repaired: routes are in the database, but not compiled" in relay("apply")
    assert relay("apply").startswith("no difference")
    conn.execute(
        "insert into relay.outbox (kind, key, payload) select 'order.x', n::text, '1' from generate_series(1, 99) n"
    )
    assert conn.execute("select max(shard) from relay.outbox").fetchone() == (3,)


def test_a_route_function_that_somebody_replaced(relay: Command, conn: psycopg.Connection) -> None:
    conn.execute(
        "create or replace function relay.route() returns trigger language plpgsql as"
        " 'begin new.sink := ''x''; new.shard := 0; return new; end'"
    )
    assert "not compiled" in check(relay)
    assert "repaired" in relay("apply")
    assert sink_of_a_new_message(conn) == "emails"


def test_a_sequence_that_lies_behind(relay: Command, conn: psycopg.Connection) -> None:
    sink_of_a_new_message(conn)
    without_triggers(
        conn,
        "insert into relay.outbox (id, sink, shard, kind, payload) overriding system value"
        " values (5000, 'orders', 7, 'order.x', '{}')",
    )
    assert "ids below those" in check(relay)
    assert "repaired: the next ids lie below" in relay("apply")
    row = conn.execute("insert into relay.outbox (kind, payload) values ('SendX', '1') returning id").fetchone()
    assert row == (5001,)
    assert "ids below those" not in check(relay)


def test_apply_repairs_as_the_worker_role_too(relay: Command, conn: psycopg.Connection) -> None:
    conn.execute("comment on function relay.route() is null")
    with worker(conn) as url:
        assert "repaired" in Command(url, relay.folder)("apply")


def test_messages_in_shards_that_do_not_exist(relay: Command, conn: psycopg.Connection) -> None:
    conn.execute("insert into relay.outbox (sink, shard, kind, payload) values ('orders', 8, 'order.x', '{}')")
    assert 'sink "orders" has messages in shards that do not exist' in check(relay)
    conn.execute("update relay.outbox set sink = 'emails', shard = 1")
    assert 'sink "emails" has messages in shards that do not exist' in check(relay)


def test_row_security_is_said_at_the_start_and_by_the_check(relay: Command, conn: psycopg.Connection) -> None:
    sink_of_a_new_message(conn)
    with worker(conn) as url:
        beside = Command(url, relay.folder)
        for table in ("outbox", "migrations"):
            conn.execute(SQL("alter table relay.{} enable row level security").format(Identifier(table)))
            assert f"row security is on for relay.{table}" in check(relay), "the owner sees all, and says so"
            for args in (["run", "--drain"], ["status", "--check"]):
                done = beside.run(*args)
                assert done.returncode == 1
                assert len(done.stderr.splitlines()) == 1
                assert f"row security hides rows of relay.{table}" in done.stderr
            conn.execute(SQL("create policy p on relay.{} using (true)").format(Identifier(table)))
            assert "row security" not in check(relay)
            beside("status")
            conn.execute(SQL("alter table relay.{} disable row level security").format(Identifier(table)))


class worker:
    """URL for a role that has what relay_worker has, made after the schema."""

    def __init__(self, conn: psycopg.Connection) -> None:
        self._conn = conn
        self._name = f"worker_{conn.info.dbname}"

    def __enter__(self) -> str:
        self._conn.execute(SQL("create role {} login in role relay_worker").format(Identifier(self._name)))
        return make_conninfo(f"host={self._conn.info.host} port={self._conn.info.port}", user=self._name,
                             dbname=self._conn.info.dbname)  # fmt: skip

    def __exit__(self, *_: object) -> None:
        self._conn.execute(SQL("drop role {}").format(Identifier(self._name)))


RIGHTS = """
select object, a.grantee::regrole::text, a.privilege_type
  from (select c.oid::regclass::text, coalesce(c.relacl, acldefault('r', c.relowner))
          from pg_class c where c.relnamespace = 'relay'::regnamespace and c.relkind in ('r', 'v')
         union all
        select c.oid::regclass::text, coalesce(c.relacl, acldefault('s', c.relowner))
          from pg_class c where c.relnamespace = 'relay'::regnamespace and c.relkind = 'S'
         union all
        select p.oid::regprocedure::text, coalesce(p.proacl, acldefault('f', p.proowner))
          from pg_proc p where p.pronamespace = 'relay'::regnamespace
         union all
        select format('%s.%s', a.attrelid::regclass, a.attname), a.attacl
          from pg_attribute a join pg_class c on c.oid = a.attrelid where c.relnamespace = 'relay'::regnamespace
         union all
        select 'schema', nspacl from pg_namespace where nspname = 'relay') o (object, rights)
 cross join lateral aclexplode(o.rights) a
"""
EVERYBODY = "-"


def test_grants_are_renewed_and_printed(relay: Command, conn: psycopg.Connection) -> None:
    """A restore without privileges leaves tables to nobody but the owner, and functions to everybody."""
    before = set(conn.execute(RIGHTS).fetchall())
    for how in ("migrate", "psql"):
        conn.execute("revoke all on all tables in schema relay from relay_worker, relay_writer")
        conn.execute("revoke all on all sequences in schema relay from relay_worker, relay_writer, public")
        conn.execute("revoke all on all functions in schema relay from relay_worker, relay_writer")
        conn.execute("grant execute on all functions in schema relay to public")
        conn.execute("revoke all on schema relay from relay_worker, relay_writer")
        assert before - set(conn.execute(RIGHTS).fetchall())
        if how == "migrate":
            relay("migrate")
        else:
            conn.execute(Command("", relay.folder)("grants", "--sql").encode())
        after = set(conn.execute(RIGHTS).fetchall())
        assert before <= after
        assert {right for right in after - before if right[1] == EVERYBODY} == set()


def test_a_role_that_owns_nothing_may_call_migrate(relay: Command, conn: psycopg.Connection) -> None:
    with worker(conn) as url:
        assert "is up to date" in Command(url, relay.folder)("migrate")


def test_what_was_committed_after_apply_had_looked_is_routed_by_relays(outbox: Outbox) -> None:
    outbox.configure({"main": {}}, routes=[{"kind": "other", "sink": "main"}])
    with psycopg.connect(outbox.url) as late, outbox.relay():
        late.execute("insert into relay.outbox (kind, payload) values ('made', '{}')")
        outbox.configure({"main": {}}, routes=[{"kind": "made", "sink": "main"}])
        late.commit()
        outbox.insert(1, kind="never")
        assert outbox.count("kind = 'made' and sink = 'unrouted'") <= 1
        outbox_is(outbox, "kind = 'made'", 0)
    assert len(outbox.broker.deliveries()) == 1
    assert outbox.count("sink = 'unrouted'") == 1


def outbox_is(outbox: Outbox, where: str, count: int) -> None:
    wait_until(lambda: outbox.count(where) == count, timeout=30, what=f"{count} messages where {where}")
