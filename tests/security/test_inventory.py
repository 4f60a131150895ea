"""All that the schema has, read from PostgreSQL's catalog: what is new is refused here until it is safe, and listed.

What an attacker does with what is allowed: the other files of this folder.
"""

from __future__ import annotations

import pytest

from tests.security.roles import World
from tests.servers.postgres import every_postgres

pytestmark = every_postgres

FUNCTION = """
    select p.oid::regprocedure::text as name, p.*
      from pg_proc p where p.pronamespace = 'relay'::regnamespace
"""
FIXED = "coalesce(p.proconfig @> array['search_path=pg_catalog, pg_temp'], false)"

PUBLIC_MAY_CALL = {
    # These work out a value from their arguments.
    "relay.hash_of(text,uuid)",
    "relay.bucket_of(text,text,uuid)",
    "relay.names_sinks(text)",
    # These insert as the caller, who needs the right to.
    "relay.publish(text,json,text,jsonb,uuid,text)",
    "relay.enqueue(text,json,timestamp with time zone,integer,text,jsonb,text,text)",
}
WRITERS_MAY_ATTACH = {"relay.accept_debezium()"}
WRITERS_COLUMNS = {
    "sink", "kind", "key", "payload", "body", "headers", "message_id", "run_at", "max_attempts", "dedupe_key",
}  # fmt: skip


def names(world: World, query: str) -> set[str]:
    return {str(row[0]) for row in world.rows(query)}


def test_what_runs_as_the_owner_has_a_fixed_path_and_meets_only_types_of_postgresql(world: World) -> None:
    """An argument, or a column of a table that somebody else attaches it to, could bring code of its own."""
    definers = f"select f.name from ({FUNCTION}) f where f.prosecdef"
    assert names(world, definers), "some functions do"
    free = f"select f.name from ({FUNCTION}) f, lateral (select f.*) p where f.prosecdef and not {FIXED}"
    assert names(world, free) == set()
    foreign = f"""
        select f.name from ({FUNCTION}) f cross join unnest(f.proargtypes) a join pg_type t on t.oid = a
         where f.prosecdef and (t.typnamespace <> 'pg_catalog'::regnamespace or t.typtype <> 'b')
    """
    assert names(world, foreign) == set()
    attachable = f"""
        select f.name from ({FUNCTION}) f
         where f.prosecdef and f.prorettype in ('trigger'::regtype, 'event_trigger'::regtype)
           and exists (select from aclexplode(coalesce(f.proacl, acldefault('f', f.proowner))) g
                        where g.grantee <> f.proowner)
    """
    assert names(world, attachable) == set()


def test_every_name_in_a_function_means_postgresql_s_own(world: World) -> None:
    """By a fixed path or a body that was parsed when it was made. What has neither is tried in `test_decoys.py`."""
    free = f"select f.name from ({FUNCTION}) f, lateral (select f.*) p where not {FIXED} and p.prosqlbody is null"
    assert names(world, free) == {"relay.route()"}


def test_who_may_call_what(world: World) -> None:
    granted = f"""
        select f.name, coalesce(r.rolname, 'public')
          from ({FUNCTION}) f
         cross join aclexplode(coalesce(f.proacl, acldefault('f', f.proowner))) g
          left join pg_roles r on r.oid = g.grantee
         where g.grantee <> f.proowner
    """
    rows = world.rows(granted)
    assert {name for name, role in rows if role == "public"} == PUBLIC_MAY_CALL
    trigger = names(world, f"select f.name from ({FUNCTION}) f where f.prorettype = 'trigger'::regtype")
    assert {name for name, role in rows if name in trigger} == WRITERS_MAY_ATTACH
    assert {role for _, role in rows} == {"public", "relay_writer", "relay_worker"}
    definers = names(world, f"select f.name from ({FUNCTION}) f where f.prosecdef")
    assert {name for name, role in rows if name in definers and role != "relay_worker"} == set()


def test_who_may_do_what_to_tables(world: World) -> None:
    granted = """
        select c.relname, coalesce(r.rolname, 'public'), g.privilege_type, g.is_grantable
          from pg_class c
         cross join aclexplode(c.relacl) g left join pg_roles r on r.oid = g.grantee
         where c.relnamespace = 'relay'::regnamespace and g.grantee <> c.relowner
    """
    rows = world.rows(granted)
    assert {row for row in rows if row[1] == "public" or row[3]} == set()
    assert {row[:3] for row in rows if row[1] == "relay_writer"} == {
        ("debezium_outbox", "relay_writer", "INSERT"),
        ("outbox_id_seq", "relay_writer", "USAGE"),
    }
    changes = {row[2] for row in rows if row[1] == "relay_worker"} - {"SELECT", "INSERT", "UPDATE", "DELETE", "USAGE"}
    assert changes == set(), "a trigger, a reference or a truncation is the owner's"
    columns = """
        select c.relname, a.attname, r.rolname, g.privilege_type
          from pg_class c join pg_attribute a on a.attrelid = c.oid
         cross join aclexplode(a.attacl) g join pg_roles r on r.oid = g.grantee
         where c.relnamespace = 'relay'::regnamespace
    """
    assert set(world.rows(columns)) == {("outbox", name, "relay_writer", "INSERT") for name in WRITERS_COLUMNS}


def test_nothing_depends_on_what_others_own(world: World) -> None:
    """A column's type, a default, a check, an index or a view could call code of somebody else."""
    query = """
        select pg_describe_object(d.classid, d.objid, d.objsubid), pg_describe_object(d.refclassid, d.refobjid, 0)
          from pg_depend d
          left join pg_proc p on d.refclassid = 'pg_proc'::regclass and p.oid = d.refobjid
          left join pg_type t on d.refclassid = 'pg_type'::regclass and t.oid = d.refobjid
          left join pg_operator o on d.refclassid = 'pg_operator'::regclass and o.oid = d.refobjid
          left join pg_attrdef a on d.classid = 'pg_attrdef'::regclass and a.oid = d.objid
          left join pg_constraint k on d.classid = 'pg_constraint'::regclass and k.oid = d.objid
          left join pg_rewrite w on d.classid = 'pg_rewrite'::regclass and w.oid = d.objid
          left join pg_trigger g on d.classid = 'pg_trigger'::regclass and g.oid = d.objid
          join pg_class c on c.oid = coalesce(a.adrelid, k.conrelid, w.ev_class, g.tgrelid, d.objid)
         where c.relnamespace = 'relay'::regnamespace
           and coalesce(p.pronamespace, t.typnamespace, o.oprnamespace)
               not in ('pg_catalog'::regnamespace, 'relay'::regnamespace)
    """
    assert world.rows(query) == []


@pytest.mark.parametrize("role", ["creator", "nobody"])
def test_a_role_without_rights_reaches_nothing(world: World, role: str) -> None:
    """Not by name, nor by the number that PostgreSQL gives to what it cannot name."""
    query = """
        select c.relname from pg_class c
         where c.relnamespace = 'relay'::regnamespace and c.relkind in ('r', 'v', 'm', 'p', 'f')
           and (has_table_privilege(%s, c.oid, 'select, insert, update, delete, truncate, references, trigger')
                or has_any_column_privilege(%s, c.oid, 'select, insert, update, references'))
         union all
        select c.relname from pg_class c
         where c.relnamespace = 'relay'::regnamespace
           and case when c.relkind = 'S' then has_sequence_privilege(%s, c.oid, 'usage, select, update') end
    """
    name = world.names[role]
    assert world.rows(query, name, name, name) == []
    assert world.rows("select has_schema_privilege(%s, 'relay', 'usage, create')", name) == [(False,)]
