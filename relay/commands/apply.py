"""`relay apply`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from relay.commands import Globals
from relay.commands.common import counted, database_of, print_json

if TYPE_CHECKING:
    from relay.admin.difference import Difference


@click.command()
@click.option("--dry-run", is_flag=True, help="Show the difference and change nothing.")
@click.option("--yes", is_flag=True, help="Remove sinks and routes without a question.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.pass_obj
def apply(options: Globals, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Write the file's sinks and routes into the database, then route what had no route until now.

    Sinks and routes that only the database has are removed. It asks before it does that.
    """
    from relay.admin import apply as work
    from relay.admin import upkeep
    from relay.admin.difference import difference

    settings = options.settings(clients=False)
    with database_of(options, "relay apply") as (database, _):
        changes = difference(database.query, settings)
        if dry_run:
            _show(changes, as_json, dry_run=True, repaired=upkeep.restored(database).problems())
        work.refuse(database, changes)
        if dry_run:
            return
        if changes.removed and not yes:
            _ask(changes)
        say = partial(click.echo, err=True)
        changes = work.apply(database, settings, say=say, may_remove=changes.removed)
        repaired = upkeep.repair(database, say=say)
        rerouted = sum(work.reroute(database))
        unrouted = work.unrouted(database)
    _show(changes, as_json, repaired=repaired, rerouted=rerouted, unrouted=unrouted)


def _ask(changes: Difference) -> None:
    for names in sorted(changes.removed):
        title = f"sink {names[0]}" if len(names) == 1 else f"route {names[0]} → {names[1]}"
        click.echo(f"- {title}", err=True)
    click.confirm("Remove these, which the file does not have? (--yes skips this question)", abort=True, err=True)


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
    for old, new in changes.sinks:
        if not dry_run and old and new and bool(old.shards) != bool(new.shards):
            click.echo(
                f'the order of sink "{new.name}" {"begins" if new.shards else "ends"}: relays whose configuration says '
                "the same go over to it within seconds, others stop serving it",
                err=True,
            )
    if rerouted:
        click.echo(f"routed {counted(rerouted, 'message')} that had no route until now")
    if unrouted:
        click.echo(f"{counted(unrouted, 'message')} without a route: no pattern matches, or a live duplicate is there")


def _sign(old: object, new: object) -> str:
    return "~" if old and new else "+" if new else "-"


def _facts(row: Any) -> dict[str, Any]:
    """A sink's or a route's, in the words of the configuration file."""
    if "kind" in row._fields:
        return {"kind": row.kind, "sink": row.sink, "share": [row.lo, row.hi], "shadow": row.shadow}
    order = {"order": "key", "shards": row.shards, "strict": row.strict} if row.shards else {"order": "none"}
    schedule = "relay" if row.hand_over is None else "broker"
    return {"sink": row.name, **order, "max_attempts": row.max_attempts, "schedule": schedule}


def _words(row: Any) -> str:
    facts = _facts(row).items()
    return ", ".join(f"{name} {json.dumps(value)}" for name, value in facts if name not in ("kind", "sink", "shadow"))
