"""`relay status`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from relay.commands import Globals
from relay.commands.common import counted, database_of, print_json
from relay.commands.parameters import duration
from relay.commands.sinks_table import TITLES, age, cells
from relay.errors import CheckFailed, UsageError

if TYPE_CHECKING:
    from relay.admin.status import RelayStatus, SinkStatus, Status


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.option("--watch", is_flag=True, help="Go on showing it, with rates, until Ctrl-C.")
@click.option(
    "--interval", type=duration, default="1s", show_default=True, help="With --watch: time between two looks."
)
@click.option("--check", is_flag=True, help="Exit code 3 when a person should look: see above.")
@click.option(
    "--max-age", type=duration, default="60s", show_default=True, help="With --check: longest a message may be due."
)
@click.option(
    "--max-dead",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="With --check: dead messages a sink may have.",
)
@click.pass_obj
def status(
    options: Globals, as_json: bool, watch: bool, interval: float, check: bool, max_age: float, max_dead: int
) -> None:
    """Show what waits, for each sink.

    --check finds: messages without a route or for a sink that is not configured; an open circuit; an unavailable
    destination; more dead messages than --max-dead; a message due for longer than --max-age; messages due while no
    relay runs; blocked keys; shares that leave buckets out; sinks that no relay serves; a schema that was published,
    secured or restored in such a way that messages stay or cost more. A paused sink may wait.
    """
    from relay.admin.findings import find
    from relay.admin.status import read_status

    if watch and (as_json or check):
        raise UsageError("expected --watch alone, got it with --json or --check")
    with database_of(options, "relay status") as (database, _):
        if watch:
            from relay.commands.watch import watch_status

            watch_status(database, interval)
            return
        now = read_status(database)
        found = find(database) if check else []
    if as_json:
        print_json(_document(now))
    else:
        _print(now)
    problems = [*now.problems(max_age=max_age, max_dead=max_dead), *found] if check else []
    if problems:
        raise CheckFailed("; ".join(problems))


def _print(now: Status) -> None:
    from relay.tables import print_table

    print_table(TITLES, [cells(sink) for sink in now.sinks])
    for one in now.unavailable:
        click.echo(
            f'{one.sink}: destination "{one.name}" is unavailable for {age(one.seconds)}, '
            f"{counted(one.waiting, 'message')} waiting: {one.reason}"
        )
    for relay in now.inventory:
        waits = "".join(f"; not {name}: {reason}" for name, reason in relay.waits.items())
        served = ", ".join(relay.sinks) or "nothing"
        click.echo(f"relay {relay.worker}, {relay.version or '?'}, for {age(relay.up_seconds)}, serves {served}{waits}")
    click.echo(f"{counted(now.relays, 'relay')}, {counted(now.unrouted, 'message')} without a route")


def _document(now: Status) -> dict[str, Any]:
    sinks = {sink.name: _facts(sink) for sink in now.sinks}
    for one in now.unavailable:
        facts = {"reason": one.reason, "seconds": round(one.seconds, 3), "waiting": one.waiting}
        sinks[one.sink].setdefault("unavailable", {})[one.name] = facts
    return {"sinks": sinks, "unrouted": now.unrouted, "relays": [_relay(relay) for relay in now.inventory]}


def _relay(relay: RelayStatus) -> dict[str, Any]:
    return {**relay._asdict(), "up_seconds": round(relay.up_seconds, 3), "seen_seconds": round(relay.seen_seconds, 3)}


def _facts(sink: SinkStatus) -> dict[str, Any]:
    facts = {
        "due": sink.due,
        "scheduled": sink.scheduled,
        "later": sink.later,
        "retrying": sink.retrying,
        "held": sink.held,
        "keys": sink.keys,
        "claimed": sink.claimed,
        "dead": sink.dead,
        "oldest_due_seconds": _rounded(sink.oldest_due_seconds),
        "paused": sink.paused,
        "paused_seconds": _rounded(sink.paused_seconds),
        "circuit": sink.circuit,
        "circuit_reason": sink.unwell,
    }
    return facts if sink.known else {**facts, "unknown": True}


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
