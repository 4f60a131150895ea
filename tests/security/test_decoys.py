"""A schema that has something of the name of everything in PostgreSQL's own, in front of it in the search_path.

Whoever may create in a schema of somebody's path can make such things, or such as fit a call better than PostgreSQL's
own: an operator for bigint and integer, a power(integer, bigint). Here each of them fails when it is called, so any
name that we look up by the path makes a statement fail, be it a function, an operator, a type or a cast to one.
"""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from relay import Event, Job, enqueue, enqueue_many, publish, publish_many
from tests.harness.outbox import Outbox
from tests.security.roles import World
from tests.servers.pgbouncer import run_pgbouncer
from tests.servers.postgres import every_postgres

DECOYS = """
create schema decoy;
grant usage on schema decoy to public;
do $make$
declare
  v record;
  types constant text[] := '{smallint,integer,bigint,numeric,float8,text,varchar,"\\"char\\""}';
begin
  -- Types: whatever is cast to one of them fails.
  for v in select format_type(t.oid, null) as type, t.typname from pg_type t
            where t.typnamespace = 'pg_catalog'::regnamespace and t.typtype = 'b' and t.typelem = 0
  loop
    begin
      execute format('create domain decoy.%I as pg_catalog.%I check (false)', v.typname, v.typname);
    exception when others then null;
    end;
  end loop;
  set local search_path = pg_catalog;
  -- Functions. Those with pseudo-types of PostgreSQL's own cannot be made, by us or by anybody else but a superuser.
  for v in select p.proname, pg_get_function_arguments(p.oid) as arguments, pg_get_function_result(p.oid) as result
             from pg_proc p where p.pronamespace = 'pg_catalog'::regnamespace and p.prokind = 'f'
  loop
    begin
      execute format('create function decoy.%I(%s) returns %s language plpgsql as %L', v.proname, v.arguments, v.result,
                     format('begin raise exception using message = %L; end', 'decoy function ' || v.proname));
    exception when others then null;
    end;
  end loop;
  -- Operators, as they are.
  for v in select o.oid, o.oprname, o.oprleft, o.oprright, format_type(o.oprleft, null) as l,
                  format_type(o.oprright, null) as r, format_type(o.oprresult, null) as result
             from pg_operator o where o.oprnamespace = 'pg_catalog'::regnamespace
  loop
    begin
      execute format('create function decoy.%I(%s) returns %s language plpgsql as %L', 'op_' || v.oid,
                     concat_ws(', ', case when v.oprleft <> 0 then v.l end, v.r), v.result,
                     format('begin raise exception using message = %L; end', 'decoy operator ' || v.oprname));
      execute format('create operator decoy.%s (%s rightarg = %s, function = decoy.%I)', v.oprname,
                     case when v.oprleft <> 0 then format('leftarg = %s, ', v.l) end, v.r, 'op_' || v.oid);
    exception when others then null;
    end;
  end loop;
  create function decoy.power(integer, bigint) returns float8 language plpgsql as
    $body$begin raise exception 'decoy that fits better'; end$body$;
  -- And such as fit better than anything there: of all pairs of these types.
  for v in select l, r from unnest(types) l cross join unnest(types) r
  loop
    execute format('create function decoy.better(%s, %s) returns boolean language plpgsql as %L', v.l, v.r,
                   $body$begin raise exception 'decoy that fits better'; end$body$);
  end loop;
  for v in select l, r, o from unnest(types) l cross join unnest(types) r
            cross join unnest(string_to_array('= <> < > <= >= + - * / % >> << & | || ~ ~~ !~ !~~ @> -> ->>', ' ')) o
  loop
    begin
      execute format('create operator decoy.%s (leftarg = %s, rightarg = %s, function = decoy.better)', v.o, v.l, v.r);
    exception when duplicate_function then null;
    end;
  end loop;
end
$make$;
"""

WRITES = (
    "insert into relay.outbox (kind, payload, key) values ('x', '1', 'k')",
    "insert into relay.outbox (kind, payload, key, dedupe_key) values ('both', '1', 'k', 'd')",
    "insert into relay.outbox (kind, payload, dedupe_key) values ('half%', '1', 'd') on conflict do nothing",
    "insert into relay.outbox (kind, body, sink) values ('x', '\\x00', 'b,c')",
    "insert into relay.outbox (kind, payload, sink, run_at, key) values ('x', '1', 'c,a', '2099-01-01', 'k')",
    "insert into relay.outbox (kind, payload, sink, run_at) values ('x', '1', 'b', '2001-01-01')",
    "select relay.publish('x', '1', key => 'k', headers => '{}')",
    "select relay.enqueue('x', '[]', run_at => '2099-01-01', dedupe_key => 'e', key => 'k')",
    "insert into relay.debezium_outbox values ('e3a1c1b0-0000-4000-8000-000000000001', 'Order', '42', 'Created', '{}')",
    "insert into {schema}.table_of_theirs"
    " values ('e3a1c1b0-0000-4000-8000-000000000002', 'Order', '42', 'Created', '{}', '#x')",
)


@pytest.fixture
def decoys(world: World) -> World:
    world.owner.execute(DECOYS)
    made_query = (
        "select count(*) > 3000, bool_or(proname = 'power') from pg_proc where pronamespace = 'decoy'::regnamespace"
    )
    (made,) = world.rows(made_query)
    assert made == (True, True)
    return world


@every_postgres
def test_a_decoy_is_met_by_what_is_not_qualified(decoys: World) -> None:
    """Else the tests below would find nothing."""
    decoys.owner.execute("set search_path = decoy")
    for statement in ("select 1::bigint % 2", "select power(1::int4, 2::int8)"):
        with pytest.raises(psycopg.Error, match=r"decoy"):
            decoys.owner.execute(statement.encode())
    decoys.owner.execute("set search_path = decoy, pg_catalog")
    for statement in (
        "select now()",
        "select 1 = 1",
        "select 1::bigint % 2",
        "select 'a' like 'b'",
        "select '1'::text",
        "select power(1, 2::int8)",
        "select case 'a' when 'b' then 1 end",
        "select 'a'::text in ('b', 'c')",
    ):
        with pytest.raises(psycopg.Error, match=r"decoy|violates check|does not exist|not unique"):
            decoys.owner.execute(statement.encode())


@every_postgres
@pytest.mark.parametrize("role", ["superuser", "writer"])
@pytest.mark.parametrize("path", ["decoy, pg_catalog", "pg_catalog, decoy", "decoy"])
def test_a_writer_with_such_a_path_runs_none_of_it(decoys: World, role: str, path: str) -> None:
    schema = decoys.names["writer"]
    with psycopg.connect(decoys.url if role == "superuser" else decoys.url_of(role)) as conn:
        conn.execute(
            f"create table {schema}.table_of_theirs (id uuid, aggregatetype text, aggregateid text, type text,"
            "payload jsonb, tracingspancontext text)".encode()
        )
        conn.execute(
            f"create trigger t after insert on {schema}.table_of_theirs for each row"
            " execute function relay.accept_debezium()".encode()
        )
        conn.execute(f"set search_path = {path}".encode())
        for statement in WRITES:
            conn.execute(statement.replace("{schema}", schema).encode())
        publish(conn, "x", {"a": 1}, key="k", headers={"h": 1})
        assert enqueue(conn, "both", [1], dedupe_key="f")
        assert enqueue(conn, "both", [1], dedupe_key="f") is None
        publish_many(conn, [Event("x", 1), Event("x", b"2")])
        assert len(enqueue_many(conn, [Job("x", 1), Job("half%", 2, dedupe_key="g")])) == 2
        with conn.cursor().copy("copy relay.outbox (kind, payload, key) from stdin") as copy:
            copy.write_row(("x", "1", "k"))
    assert decoys.rows("select count(*) from relay.outbox") == [(20,)]


@pytest.mark.parametrize("way", ["direct", pytest.param("pooled", marks=pytest.mark.full)])
@pytest.mark.parametrize("order", ["none", "key"])
def test_a_relay_with_such_a_path_runs_none_of_it(outbox: Outbox, way: str, order: str) -> None:
    """Its statements are written for its own session: every command and a run with all that may happen to a message."""
    outbox.sql(DECOYS)
    database = outbox.url.rpartition("/")[2]
    outbox.sql(f'alter database "{database}" set search_path = decoy, pg_catalog')
    if way == "direct":
        drive(outbox, outbox.url, order)
    else:
        with run_pgbouncer("1.24", outbox.url) as (pooled, _):
            drive(outbox, pooled, order)


def drive(outbox: Outbox, url: str, order: str) -> None:
    def command(*arguments: str, **more: Any) -> str:
        done = outbox.run_relay(*arguments, **more)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        assert "decoy" not in done.stdout + done.stderr
        return done.stdout

    database = {"url": url}
    outbox.configure({"main": {"order": order, "max_attempts": 2}, "other": {}}, database=database, applied=False)
    command("migrate")
    command("apply")
    outbox.broker.script(kinds={"bad": "retry", "worse": "reject"})
    for kind in ("made", "bad", "worse", "made"):
        command("publish", kind, '{"a": 1}', "--key", "k")
    command("enqueue", "made", "[1]", "--run-at", "1s", "--dedupe-key", "d")
    command("run", "--drain")
    with outbox.relay() as relay:
        outbox.wait_until_empty()
        assert [event for event in relay.events() if event["level"] == "error" or "decoy" in str(event)] == []
    assert outbox.count(table="dead") == 2
    for arguments in (
        ("status",),
        ("status", "--json"),
        ("dead", "list"),
        ("dead", "requeue", "--all", "--yes"),
        ("keys", "blocked", "--all"),
        ("pause", "main", "--reason", "x"),
        ("resume", "main"),
        ("reshard", "other", "4", "--yes"),
        ("migrate", "--sql"),
    ):
        command(*arguments)
