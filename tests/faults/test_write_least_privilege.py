"""An application that may insert and nothing else: no SELECT, no RETURNING, a search_path of any kind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg import Connection
from psycopg.conninfo import make_conninfo
from psycopg.errors import InsufficientPrivilege
from psycopg.sql import SQL, Identifier

from relay import Event, Job, enqueue, enqueue_many, publish, publish_many
from tests.servers.postgres import every_postgres

pytestmark = every_postgres

DECOYS = """
create schema decoy;
create table decoy.outbox (like relay.outbox);
create table decoy.sinks (like relay.sinks);
create table decoy.relays (like relay.relays);
create function decoy.publish(text, json) returns uuid language sql as 'select null::uuid';
create function decoy.hash_of(text, uuid) returns bigint language sql as 'select 1/0';
create function decoy.never(text, text) returns boolean language sql as 'select false';
create operator decoy.~~ (leftarg = text, rightarg = text, function = decoy.never);
create operator decoy.= (leftarg = text, rightarg = text, function = decoy.never);
grant usage on schema decoy to public;
"""
SEARCH_PATHS = ["''", "decoy", "decoy, public", "relay"]


@pytest.fixture
def owner(relay_database_url: str) -> Iterator[Connection]:
    with psycopg.connect(relay_database_url, autocommit=True) as conn:
        conn.execute(DECOYS)
        conn.execute("insert into relay.sinks (name, shards, strict) values ('a', 8, true), ('b', 0, false)")
        conn.execute("insert into relay.routes (kind, sink) values ('*', 'a'), ('both', 'b')")
        conn.execute("insert into relay.relays (worker, idle_until) values ('idle', now() + interval '1 hour')")
        yield conn


@pytest.fixture(params=["its own grants", "relay_writer"])
def writer(request: pytest.FixtureRequest, owner: Connection, relay_database_url: str) -> Iterator[str]:
    """The URL of a role that may insert."""
    role = f"app_{owner.info.dbname}"
    owner.execute(SQL("create role {} login").format(Identifier(role)))
    if request.param == "relay_writer":
        owner.execute(SQL("grant relay_writer to {}").format(Identifier(role)))
    else:
        owner.execute(SQL("grant usage on schema relay to {}").format(Identifier(role)))
        owner.execute(SQL("grant insert on relay.outbox to {}").format(Identifier(role)))
        # One of the sinks is strict.
        owner.execute(SQL("grant usage on sequence relay.outbox_id_seq to {}").format(Identifier(role)))
    yield make_conninfo(relay_database_url, user=role)
    owner.execute(SQL("drop owned by {}").format(Identifier(role)))
    owner.execute(SQL("drop role {}").format(Identifier(role)))


def written(owner: Connection) -> list[Any]:
    return owner.execute("select kind, sink from relay.outbox order by id").fetchall()


@pytest.mark.parametrize("path", SEARCH_PATHS)
def test_whoever_may_insert_can_write_everything(owner: Connection, writer: str, path: str) -> None:
    with psycopg.connect(writer) as conn:
        conn.execute(f"set search_path = {path}".encode())
        publish(conn, "one", {"a": 1}, key="k", headers={"h": 1})
        publish(conn, "body", b"\xff", sink="b")
        assert enqueue(conn, "job", [1], dedupe_key="d")
        assert enqueue(conn, "job", [1], dedupe_key="d") is None
        publish_many(conn, [Event("many", 1), Event("many", 2)])
        later = timedelta(hours=1)
        assert enqueue_many(conn, [Job("later", 1, later), Job("later", 2, later, dedupe_key="d")])[1] is None
        conn.execute("insert into relay.outbox (kind, payload, run_at) values ('plain', '1', now() + interval '1h')")
        conn.execute("select relay.publish('function', '1'), relay.enqueue('function', '[]', dedupe_key => 'e')")
        with conn.cursor().copy("copy relay.outbox (kind, payload) from stdin") as copy:
            copy.write_row(("copied", "1"))
        publish(conn, "both", 1)
    expected = [("one", "a"), ("body", "b"), ("job", "a"), ("many", "a"), ("many", "a"), ("later", "a"), ("plain", "a")]
    found = written(owner)
    assert found[:-2] == [*expected, ("function", "a"), ("function", "a"), ("copied", "a")]
    assert set(found[-2:]) == {("both", "a"), ("both", "b")}
    assert owner.execute("select count(*) from decoy.outbox").fetchone() == (0,)


def test_asyncpg_needs_no_more(owner: Connection, writer: str) -> None:
    async def run() -> None:
        info = psycopg.conninfo.conninfo_to_dict(writer)
        names = {"host": "host", "port": "port", "user": "user", "database": "dbname"}
        conn = await asyncpg.connect(**{name: info[ours] for name, ours in names.items()})
        async with conn.transaction():
            await publish(conn, "one", 1)
            await enqueue(conn, "job", [1], dedupe_key="d")
            await publish_many(conn, [Event("many", 1), Event("many", 2)])
        await conn.close()

    asyncio.run(run())
    assert [kind for kind, _ in written(owner)] == ["one", "job", "many", "many"]


@pytest.mark.parametrize(
    "statement",
    [
        "select * from relay.outbox",
        "select * from relay.routes",
        "insert into relay.outbox (kind, payload) values ('k', '1') returning id",
        "update relay.outbox set kind = 'k'",
        "delete from relay.outbox",
        "truncate relay.outbox",
        "insert into relay.sinks (name) values ('x')",
        "select relay.compile_routes()",
        "create table relay.x ()",
    ],
)
def test_it_may_do_nothing_else(owner: Connection, writer: str, statement: str) -> None:
    with psycopg.connect(writer) as conn, pytest.raises(InsufficientPrivilege):
        conn.execute(statement.encode())


@pytest.mark.parametrize("columns", ["shard", "claim_token", "attempts", "prior_tokens", "created_at", "due_at"])
def test_the_relays_own_columns_are_not_for_writers(owner: Connection, columns: str) -> None:
    """A shard or a claim of its own making would keep a message from ever being sent."""
    query = "select has_column_privilege('relay_writer', 'relay.outbox', %s, 'insert')"
    assert owner.execute(query, [columns]).fetchone() == (False,)
