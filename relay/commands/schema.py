"""`relay migrate`, `relay grants`, `relay apply`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from relay.commands import Globals
from relay.commands.common import counted, database_of, open_database, print_json
from relay.errors import CheckFailed, SchemaMismatch, UsageError

if TYPE_CHECKING:
    from relay.admin.difference import Difference
    from relay.database.connection import Database

LONGEST_MIGRATION_S = 24 * 3600.0
"""Building an index on a large table takes its time; keepalives still find a lost connection."""


@click.command()
@click.option("--sql", is_flag=True, help="Print the SQL, for psql or your own migrations. Needs no database.")
@click.option("--after", type=click.IntRange(0), help="With --sql: only what follows this version.", metavar="VERSION")
@click.option("--check", is_flag=True, help="Change nothing; exit code 3 when something is to be done.")
@click.pass_obj
def migrate(options: Globals, sql: bool, after: int | None, check: bool) -> None:
    """Create or upgrade the schema "relay". Safe to run by several at once, and when it is up to date."""
    from relay.database import schema

    if sql and check:
        raise UsageError("expected --sql or --check, got both")
    if after is not None and not sql:
        raise UsageError("expected --sql with --after")
    newest = schema.migrations()[-1].version
    if after is not None and after > newest:
        raise UsageError(f"--after: expected a version up to {newest}, got {after}")
    if sql:
        click.echo(schema.script(after or 0), nl=False)
        return
    settings = options.base()
    with closing(open_database(settings, name="relay migrate", timeout=LONGEST_MIGRATION_S)) as database:
        if check:
            _check(database)
            return
        applied = schema.migrate(database, say=partial(click.echo, err=True))
    for migration in applied:
        click.echo(f"applied {migration}")
    click.echo(f'schema "relay" is up to date: version {newest}')


@click.command()
@click.option("--sql", is_flag=True, required=True, help="Print the SQL. Needs no database.")
def grants(sql: bool) -> None:
    """Print what gives the roles relay_writer and relay_worker their rights. `relay migrate` grants the same."""
    from relay.database import schema

    click.echo(schema.grants(), nl=False)


def _check(database: Database) -> None:
    from relay.database import schema

    try:
        todo = [f"{migration} is to be applied" for migration in schema.pending(database)]
    except SchemaMismatch as error:
        raise CheckFailed(str(error)) from error
    todo += [f"index {name} was left half-built" for name in schema.invalid_indexes(database)]
    if todo:
        raise CheckFailed(f"{'; '.join(todo)}; run: relay migrate")
    click.echo(f'schema "relay" is up to date: version {schema.migrations()[-1].version}')


@click.command()
@click.option("--dry-run", is_flag=True, help="Show the difference and change nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.pass_obj
def apply(options: Globals, dry_run: bool, as_json: bool) -> None:
    """Write the file's sinks and routes into the database, then route what had no route until now."""
    from relay.admin import apply as work
    from relay.admin import upkeep
    from relay.admin.difference import difference

    settings = options.settings(clients=False)
    with database_of(options, "relay apply") as (database, _):
        if dry_run:
            changes = difference(database.query, settings)
            _show(changes, as_json, dry_run=True, repaired=upkeep.restored(database).problems())
            work.refuse(database, changes)
            return
        say = partial(click.echo, err=True)
        changes = work.apply(database, settings, say=say)
        repaired = upkeep.repair(database, say=say)
        rerouted = sum(work.reroute(database))
        unrouted = work.unrouted(database)
    _show(changes, as_json, repaired=repaired, rerouted=rerouted, unrouted=unrouted)


def _show(
    changes: Difference,
    as_json: bool,
    *,
    repaired: Sequence[str],
    dry_run: bool = False,
    rerouted: int = 0,
    unrouted: int = 0,
) -> None:
    if as_json:
        lines = [{"change": _sign(old, new), **_facts(new or old)} for old, new in changes]
        counts = {"rerouted": rerouted, "unrouted": unrouted}
        print_json({"changes": lines, "dry_run": dry_run, "repaired": repaired, **counts})
        return
    for old, new in changes:
        was = f"{_words(old)} → " if old and new else ""
        row: Any = new or old
        title = f"route {row.kind} → {row.sink}" if "kind" in row._fields else f"sink {row.name}"
        click.echo(f"{_sign(old, new)} {title}: {was}{_words(row)}")
    for problem in repaired:
        click.echo(f"{'to repair' if dry_run else 'repaired'}: {problem}")
    if not changes and not repaired:
        click.echo("no difference")
    elif dry_run:
        click.echo("nothing was changed")
    if rerouted:
        click.echo(f"routed {counted(rerouted, 'message')} that had no route until now")
    if unrouted:
        click.echo(f"{counted(unrouted, 'message')} without a route: no pattern matches, or a live duplicate is there")


def _sign(old: object, new: object) -> str:
    return "~" if old and new else "+" if new else "-"


def _facts(row: Any) -> dict[str, Any]:
    """A sink's or a route's, in the words of the configuration file."""
    if "kind" not in row._fields:
        return {"sink": row.name, **{name: value for name, value in row._asdict().items() if name != "name"}}
    return {"kind": row.kind, "sink": row.sink, "share": [row.lo, row.hi], "shadow": row.shadow}


def _words(row: Any) -> str:
    facts = {name: value for name, value in _facts(row).items() if name not in ("kind", "sink")}
    return ", ".join(f"{name} {json.dumps(value)}" for name, value in facts.items())
