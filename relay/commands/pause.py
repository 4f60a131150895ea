"""`relay pause`, `relay resume`. Every relay sees it at its next claim."""

from __future__ import annotations

import click

from relay.commands import Globals
from relay.commands.common import database_of, unknown_sink
from relay.errors import UsageError


@click.command()
@click.argument("sink")
@click.option("--reason", required=True, metavar="TEXT", help="Why, for whoever finds it paused.")
@click.pass_obj
def pause(options: Globals, sink: str, reason: str) -> None:
    """Stop deliveries to a sink. What is claimed is still sent; new messages wait."""
    from relay.statements import statement

    if not reason.strip():
        raise UsageError("expected a reason, got an empty text")
    with database_of(options, "relay pause") as (database, _):
        if not database.run(statement("admin/pause_sink"), {"sink": sink, "reason": reason.strip()}):
            raise unknown_sink(database, sink)
    click.echo(f'sink "{sink}" is paused: {reason.strip()}')


@click.command()
@click.argument("sink")
@click.pass_obj
def resume(options: Globals, sink: str) -> None:
    """Go on with deliveries to a sink."""
    from relay.statements import statement

    with database_of(options, "relay resume") as (database, _):
        if not database.run(statement("admin/resume_sink"), {"sink": sink}):
            raise unknown_sink(database, sink)
    click.echo(f'sink "{sink}" is not paused')
