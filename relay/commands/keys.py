"""`relay keys blocked`, `relay keys release`."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from relay.commands import Globals
from relay.commands.common import check_sink, counted, database_of, print_json
from relay.errors import UsageError

if TYPE_CHECKING:
    from relay.admin.keys import WaitingKey

TITLES = ("SINK", "KEY", "WAITING", "SINCE", "NEXT TRY", "REASON")
LINES = 100


@click.group()
def keys() -> None:
    """List and release keys whose messages wait for an earlier one."""


@keys.command()
@click.option("--sink", metavar="NAME", help="Of this sink.")
@click.option("--all", "everything", is_flag=True, help="Also keys that wait for their next try.")
@click.option("--limit", type=click.IntRange(1), help=f"At most so many. Default: {LINES}; with --json: no limit.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document: a list.")
@click.pass_obj
def blocked(options: Globals, sink: str | None, everything: bool, limit: int | None, as_json: bool) -> None:
    """List keys that go on only when a person says so, and how many of their messages wait."""
    from relay.admin.keys import stuck_keys

    if limit is None and not as_json:
        limit = LINES
    with database_of(options, "relay keys blocked") as (database, _):
        if sink is not None:
            check_sink(database, sink)
        found = stuck_keys(database, sink=sink, everything=everything)
        rows = list(islice(found, limit))
        more = next(found, None) is not None
    if as_json:
        print_json([_facts(row) for row in rows])
        return
    if not rows:
        click.echo("no stuck keys" if everything else "no blocked keys")
        return
    from relay.tables import print_table

    print_table(TITLES, [_row(row) for row in rows])
    if more:
        click.echo("there are more: --limit", err=True)


@keys.command()
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@click.option("--sink", metavar="NAME", help="Of this sink; may be left out only with --all.")
@click.option("--all", "everything", is_flag=True, help="All that wait for a person.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.pass_obj
def release(options: Globals, keys: tuple[str, ...], sink: str | None, everything: bool, as_json: bool) -> None:
    """Let keys go on now, with the next message that waits.

    A message that is dead is not sent: "relay dead requeue" puts it back, in its place, and releases its key too.
    """
    from relay.admin.keys import release

    if everything == bool(keys):
        raise UsageError("expected keys or --all, got " + ("both" if keys else "neither"))
    if keys and sink is None:
        raise UsageError("expected --sink with keys")
    with database_of(options, "relay keys release") as (database, _):
        if sink is not None:
            check_sink(database, sink)
        released = release(database, sink=sink, keys=list(keys) if keys else None)
    if as_json:
        print_json({"released": len(released)})
        return
    click.echo(f"released {counted(len(released), 'key')}")
    for key in keys:
        if key not in released:
            click.echo(f'key "{key}" was not stuck', err=True)


def _facts(key: WaitingKey) -> dict[str, Any]:
    return {
        "sink": key.sink,
        "key": key.key,
        "waiting": key.waiting,
        "since": _time(key.since),
        "retry_at": _time(key.retry_at),
        "reason": key.reason,
        "upto": key.upto,
    }


def _row(key: WaitingKey) -> tuple[str, ...]:
    reason = " ".join((key.reason or "").split())
    retry = _time(key.retry_at) or "when released"
    return (key.sink, key.key, f"{key.waiting:,}", str(_time(key.since)), retry, reason)


def _time(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat(timespec="seconds").replace("+00:00", "Z")
