"""A table in Debezium's layout has an owner, who may give it types, casts, domains, defaults and triggers of any kind:
its code runs as whoever inserts, whatever the trigger of ours does with a column.
"""

from __future__ import annotations

from contextlib import suppress

import psycopg
import pytest
from psycopg import errors

from tests.security.roles import World
from tests.servers.postgres import every_postgres

pytestmark = every_postgres

# Every way to have code of one's own run while a value is looked at or converted. It notes as whom it ran.
CODE = """
create table {me}.ran (what text, by text default current_user);
grant insert on {me}.ran to public;
create function {me}.note(what text) returns boolean language plpgsql as
  $$ begin insert into {me}.ran (what) values (what); return true; end $$;
create type {me}.own as (v text);
create function {me}.own_text({me}.own) returns text language plpgsql as
  $$ begin perform {me}.note('cast to text'); return '{{}}'; end $$;
create function {me}.own_json({me}.own) returns json language plpgsql as
  $$ begin perform {me}.note('cast to json'); return '1'; end $$;
create function {me}.own_jsonb({me}.own) returns jsonb language plpgsql as
  $$ begin perform {me}.note('cast to jsonb'); return '1'; end $$;
create function {me}.own_bytea({me}.own) returns bytea language plpgsql as
  $$ begin perform {me}.note('cast to bytea'); return ''; end $$;
create function {me}.own_uuid({me}.own) returns uuid language plpgsql as
  $$ begin perform {me}.note('cast to uuid'); return gen_random_uuid(); end $$;
create cast ({me}.own as text) with function {me}.own_text({me}.own) as implicit;
create cast ({me}.own as json) with function {me}.own_json({me}.own) as implicit;
create cast ({me}.own as jsonb) with function {me}.own_jsonb({me}.own) as implicit;
create cast ({me}.own as bytea) with function {me}.own_bytea({me}.own) as implicit;
create cast ({me}.own as uuid) with function {me}.own_uuid({me}.own) as implicit;
create domain {me}.checked_text as text check ({me}.note('check of a domain over text'));
create domain {me}.checked_json as json check ({me}.note('check of a domain over json'));
create domain {me}.checked_jsonb as jsonb check ({me}.note('check of a domain over jsonb'));
create domain {me}.checked_bytea as bytea check ({me}.note('check of a domain over bytea'));
create domain {me}.checked_uuid as uuid check ({me}.note('check of a domain over uuid'));
create type {me}.mood as enum ('{{}}', '1');
create function {me}.mood_text({me}.mood) returns text language plpgsql as
  $$ begin perform {me}.note('cast of an enum to text'); return '1'; end $$;
create cast ({me}.mood as text) with function {me}.mood_text({me}.mood) as implicit;
create type {me}.spread as range (subtype = text);
create function {me}.spread_json({me}.spread) returns json language plpgsql as
  $$ begin perform {me}.note('cast of a range to json'); return '1'; end $$;
create cast ({me}.spread as json) with function {me}.spread_json({me}.spread);
create function {me}.is({me}.own, {me}.own) returns boolean language plpgsql as
  $$ begin return {me}.note('operator'); end $$;
create operator {me}.= (leftarg = {me}.own, rightarg = {me}.own, function = {me}.is);
create function {me}.on_row() returns trigger language plpgsql as
  $$ begin perform {me}.note('trigger of theirs'); return new; end $$;
"""
# Value by type: each is tried as every column that the trigger looks at.
VALUES = {
    "own": "row('x')::{me}.own",
    "checked_text": "'x'",
    "checked_json": "'1'",
    "checked_jsonb": "'1'",
    "checked_bytea": "'\\x00'",
    "checked_uuid": "gen_random_uuid()",
    "mood": "'1'",
    "spread": "'[a,b]'",
    "own[]": "array[row('x')::{me}.own]",
    "checked_text[]": "array['x']",
}
COLUMNS = ("id", "aggregatetype", "aggregateid", "type", "payload", "tracingspancontext", "other")
PLAIN = {"id": "gen_random_uuid()", "payload": "'{}'", "tracingspancontext": "'a=b'"}


def own(conn: psycopg.Connection, text: str, me: str) -> None:
    conn.execute(text.replace("{me}", me).replace("{{", "{").replace("}}", "}").encode())


@pytest.mark.parametrize("when", ["before", "after", "deferred", "view"])
def test_code_of_a_table_s_owner_runs_as_whoever_inserts(world: World, when: str) -> None:
    """A trigger that ran as its owner would hand that one's rights, maybe a superuser's, to whoever may write."""
    me = world.names["writer"]
    with world.connect("writer") as conn:
        own(conn, CODE, me)
        for type_, value in VALUES.items():
            for column in COLUMNS:
                types = {name: "uuid" if name == "id" else "text" for name in COLUMNS} | {column: f"{me}.{type_}"}
                name = f"{me}.t"
                conn.execute(f"drop table if exists {name} cascade".encode())
                defaults = f"other2 text default {me}.note('default')::text, made text generated always as ('x') stored"
                columns = ", ".join(f"{column} {of}" for column, of in types.items())
                conn.execute(f"create table {name} ({columns}, {defaults})".encode())
                conn.execute(
                    f"create trigger a before insert on {name} for each row execute function {me}.on_row()".encode()
                )
                kind = {
                    "deferred": "create constraint trigger z after insert on {} deferrable initially deferred",
                    "view": "create trigger z instead of insert on {}",
                }.get(when, f"create trigger z {when} insert on {{}}")
                target = name
                if when == "view":
                    target = f"{me}.v"
                    conn.execute(f"create view {target} as select * from {name}".encode())
                conn.execute(f"{kind.format(target)} for each row execute function relay.accept_debezium()".encode())
                values = {name: PLAIN.get(name, "'x'") for name in COLUMNS} | {column: value.replace("{me}", me)}
                sql = f"insert into {target} ({', '.join(values)}) values ({', '.join(values.values())})"
                # Some of it is no text, no UUID or too much of either.
                with suppress(errors.DataError, errors.IntegrityError, errors.ProgrammingError):
                    conn.execute(sql.encode())
        ran = conn.execute(f"select distinct what, by from {me}.ran".encode()).fetchall()
    assert {by for _, by in ran} == {me}
    if when != "view":
        assert {"cast to text", "check of a domain over text", "trigger of theirs", "default"} <= {
            what for what, _ in ran
        }
    assert world.rows("select count(*) > 0 from relay.outbox") == [(True,)]
