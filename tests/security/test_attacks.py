"""What PostgreSQL lets a role supply (types, casts, operators, domains, defaults, settings, temporary objects), against
what is installed: none of it runs with another's rights, and nothing of others is changed or read.

The functions and triggers that there are: `test_inventory.py`. What a search_path does: `test_decoys.py`.
"""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors
from psycopg.sql import SQL, Identifier

from tests.security.roles import ROLES, World
from tests.servers.postgres import every_postgres

pytestmark = every_postgres


@pytest.mark.parametrize("role", ROLES)
def test_no_function_of_ours_can_be_attached_or_called_beyond_what_is_granted(world: World, role: str) -> None:
    """Every function of the schema, by every role: trigger functions on a table of its own, the others by a call."""
    functions = world.rows(
        """
        select p.oid::regprocedure::text, p.prorettype = 'trigger'::regtype,
               has_function_privilege(%s, p.oid, 'execute') and has_schema_privilege(%s, 'relay', 'usage'),
               array(select format('null::%%s', format_type(t, null)) from unnest(p.proargtypes) t)
          from pg_proc p where p.pronamespace = 'relay'::regnamespace
    """,
        world.names[role],
        world.names[role],
    )
    assert len(functions) > 10
    with world.connect(role) as conn:
        conn.execute("create temp table mine (sink text, kind text)")
        for function, is_trigger, granted, nulls in functions:
            name = str(function).partition("(")[0]
            attach = f"create trigger t before insert on mine for each row execute function {name}()"
            call = f"select {name}({', '.join(nulls)})"  # type: ignore[arg-type]
            sql = attach if is_trigger else call
            if granted:
                assert not is_trigger or (role, name) == ("writer", "relay.accept_debezium")
                continue
            with pytest.raises(errors.InsufficientPrivilege):
                conn.execute(sql.encode())


STATEMENTS = {
    "select": "select from {}",
    "insert": "insert into {} default values",
    "delete": "delete from {}",
    "truncate": "truncate {}",
    "copy": "copy {} to stdout",
    "lock": "lock table {} in access share mode",
    "trigger": "create trigger t before insert on {} execute function suppress_redundant_updates_trigger()",
    "rule": "create rule r as on insert to {} do instead nothing",
    "policy": "create policy p on {}",
    "row security": "alter table {} disable row level security",
    "index": "create index on {} ((null))",
    "statistics": "create statistics s on sink, kind from {}",
    "inherit": "create temp table c () inherits ({})",
    "publication": "create publication p for table {}",
    "comment": "comment on table {} is 'x'",
    "owner": "alter table {} owner to current_user",
    "drop": "drop table {}",
}
REFUSED = (errors.InsufficientPrivilege, errors.WrongObjectType, errors.ObjectNotInPrerequisiteState)
ALLOWED = {
    "writer": {("outbox", "insert"), ("debezium_outbox", "insert"), ("debezium_outbox", "lock")},
    "worker": {("any", "select"), ("any", "insert"), ("any", "delete"), ("any", "copy"), ("any", "lock")},
    "creator": set[tuple[str, str]](),
    "nobody": set[tuple[str, str]](),
}


@pytest.mark.parametrize("role", ROLES)
def test_no_role_does_to_a_table_what_it_was_not_granted(world: World, role: str) -> None:
    tables = world.rows(
        "select c.relname from pg_class c where c.relnamespace = 'relay'::regnamespace and c.relkind in ('r', 'v')"
    )
    with psycopg.connect(world.url_of(role)) as conn:
        for (table,) in tables:
            for what, sql in STATEMENTS.items():
                if {("any", what), (str(table), what)} & ALLOWED[role]:
                    continue
                with pytest.raises(REFUSED), conn.transaction():
                    conn.execute(sql.format(f"relay.{table}").encode())


@pytest.mark.parametrize("role", ["writer", "worker"])
def test_settings_of_a_session_change_nothing_that_others_meet(world: World, role: str) -> None:
    """Every setting that anybody may change, the other way round, while a message is written or routes are compiled."""
    settings = world.rows("""
        select name, case setting when 'on' then 'off' else 'on' end from pg_settings
         where context = 'user' and vartype = 'bool' and name not like '%transaction_%'
    """)
    assert len(settings) > 40
    query = "select prosrc from pg_proc where oid = 'relay.route()'::regprocedure"
    before = world.rows(query)
    with world.connect(role) as conn:
        for name, other in settings:
            conn.execute(SQL("set {} = {}").format(Identifier(str(name)), str(other)))
            if role == "writer":
                conn.execute(
                    "insert into relay.outbox (kind, payload, key, dedupe_key) values ('half%%', '1', 'k', %s)", [name]
                )
            else:
                conn.execute("update relay.routes set hi = hi")
                assert world.rows(query) == before, name
            conn.execute(SQL("reset {}").format(Identifier(str(name))))
    if role == "writer":
        assert world.rows("select count(*), count(distinct shard) from relay.outbox where sink = 'a'") == [
            (len(settings), 1)
        ]


def test_what_a_worker_writes_into_routes_and_sinks_is_data(world: World) -> None:
    """It is compiled into a function that everybody's inserts run, superusers' too."""
    evil = [
        "'; create role evil superuser; --",
        "' or pg_sleep(100) is null or '",
        "\\'; select 1; --",
        "$route$ x $route$",
        "$$",
        "%s%L%I%1$s",
        "\n  end if; raise exception 'ran'; --",
        "*/ select 1 /*",
        "\\",
        "''",
        "x\\\\'",
        "\u2028",
        "E'\\''",
    ]
    with world.connect("worker") as conn:
        for setting in ("on", "off"):
            conn.execute(f"set standard_conforming_strings = {setting}".encode())
            conn.execute("set escape_string_warning = off")
            for kind in evil:
                conn.execute("insert into relay.routes (kind, sink, lo, hi) values (%s, 'b', 0, 50)", [kind])
            for name in ("a'b", "a\\", "", "A", "a b", "a;"):
                with pytest.raises(errors.CheckViolation):
                    conn.execute("insert into relay.sinks (name, shards, strict) values (%s, 4, true)", [name])
            world.owner.execute("insert into relay.outbox (kind, payload, key) values ('x', '1', 'k')")
            for kind in evil:
                world.owner.execute(
                    "insert into relay.outbox (kind, payload, key, sink) values (%s, '1', 'k', 'b')", [kind]
                )
                world.owner.execute("insert into relay.outbox (kind, payload, key) values (%s, '1', 'k')", [kind])
            conn.execute("delete from relay.routes where sink = 'b' and hi = 50 and lo = 0 and kind <> 'half\\%'")
        with pytest.raises(errors.GeneratedAlways):
            conn.execute("insert into relay.routes (kind, sink, kind_like) values ('z', 'b', '%')")
    assert world.rows("select from pg_roles where rolname = 'evil'") == []


@pytest.mark.parametrize("role", ["writer", "superuser"])
def test_temporary_objects_stand_for_nothing_of_ours(world: World, role: str) -> None:
    with psycopg.connect(world.url if role == "superuser" else world.url_of(role), autocommit=True) as conn:
        for table in ("outbox", "sinks", "routes", "relays", "stuck_keys", "claims"):
            conn.execute(
                f"create temp table {table} (sink text, name text, dedupe_key text, kind text, payload json)".encode()
            )
        for type_ in ("text", "bigint", "json", "jsonb", "uuid", "tid", "timestamptz", "regclass"):
            conn.execute(f'create domain pg_temp."{type_}" as pg_catalog.int4 check (false)'.encode())
        conn.execute(
            "insert into relay.outbox (kind, payload, key, dedupe_key, run_at)"
            " values ('both', '1', 'k', 'd', '2099-01-01')"
        )
        conn.execute("select relay.publish('x', '1', key => 'k'), relay.enqueue('x', '[]', dedupe_key => 'e')")
        conn.execute("insert into relay.debezium_outbox values (gen_random_uuid(), 'Order', '42', 'Created', '{}')")
    assert world.rows("select count(*) from relay.outbox") == [(5,)]


def test_a_writer_learns_nothing_of_others_messages(world: World) -> None:
    """Not by RETURNING, an error's detail, statistics, the sequence's state, a plan or ON CONFLICT."""
    world.owner.execute(
        "insert into relay.outbox (kind, payload, key, dedupe_key, sink) values ('x', '\"secret\"', 'k', 'd', 'b')"
    )
    world.owner.execute("analyze relay.outbox")
    with world.connect("writer") as conn:
        insert = "insert into relay.outbox (kind, payload, dedupe_key, sink) values ('x', '1', 'd', 'b')"
        for sql in (
            f"{insert} returning payload",
            f"{insert} on conflict (sink, dedupe_key) where dedupe_key is not null do update set kind = 'y'",
            "insert into relay.outbox (kind, payload) select kind, payload from relay.outbox",
            "insert into relay.outbox (id, kind, payload) overriding system value values (1, 'x', '1')",
            "select last_value from relay.outbox_id_seq",
            "select setval('relay.outbox_id_seq', 1)",
            "explain analyze select from relay.outbox",
            "select pg_get_viewdef('relay.debezium_outbox'), payload from relay.outbox",
            "merge into relay.outbox o using (values (1)) v (x) on true when matched then delete",
        ):
            with pytest.raises((errors.InsufficientPrivilege, errors.SyntaxError)):
                conn.execute(sql.encode())
        assert conn.execute("select count(*) from pg_stats where schemaname = 'relay'").fetchone() == (0,)
        assert conn.execute(insert).rowcount == 0
        conn.execute("set default_transaction_isolation = serializable")
        with pytest.raises(errors.UniqueViolation) as caught:
            conn.execute(insert)
        assert "secret" not in str(caught.value)
