"""`relay migrate`, `relay grants`."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

import click

from relay.commands import Globals
from relay.commands.common import open_database
from relay.errors import CheckFailed, SchemaMismatch, UsageError

if TYPE_CHECKING:
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
