"""`relay pause`, `relay resume`. Every relay sees it at its next claim."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from relay.commands import Globals
from relay.commands.common import database_of
from relay.errors import UsageError

if TYPE_CHECKING:
    from relay.database import Database


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
        if not database.run(statement("pause_sink"), {"sink": sink, "reason": reason.strip()}):
            raise _unknown(database, sink)
    click.echo(f'sink "{sink}" is paused: {reason.strip()}')


@click.command()
@click.argument("sink")
@click.pass_obj
def resume(options: Globals, sink: str) -> None:
    """Go on with deliveries to a sink."""
    from relay.statements import statement

    with database_of(options, "relay resume") as (database, _):
        if not database.run(statement("resume_sink"), {"sink": sink}):
            raise _unknown(database, sink)
    click.echo(f'sink "{sink}" is not paused')


def _unknown(database: Database, sink: str) -> UsageError:
    from relay.config_tree import nearest
    from relay.statements import statement

    names = [name for name, *_ in database.query(statement("configured_sinks"))]
    return UsageError(f'expected a sink that "relay apply" has written ({nearest(sink, names)}), got "{sink}"')
