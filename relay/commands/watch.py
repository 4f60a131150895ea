"""`relay status --watch`: a table that stays on a terminal, a line a sink in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import click

from relay.admin.status import Status, Traffic, read_status, read_traffic
from relay.commands.common import counted
from relay.commands.sinks_table import TITLES, cells
from relay.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from relay.database.connection import Database


class Look(NamedTuple):
    """One look at the queue."""

    status: Status
    traffic: Traffic


def watch_status(database: Database, interval: float) -> None:
    """Show the status until Ctrl-C. A database that is away is waited for."""
    try:
        if sys.stdout.isatty():
            _live(database, interval)
        else:
            for before, now in _looks(database, interval):
                for line in _lines(before, now):
                    click.echo(line)
                sys.stdout.flush()
    except KeyboardInterrupt:
        pass


def _live(database: Database, interval: float) -> None:
    from rich.live import Live

    with Live(auto_refresh=False) as live:
        for before, now in _looks(database, interval):
            live.update(_table(before, now), refresh=True)


def _looks(database: Database, interval: float) -> Iterator[tuple[Look | None, Look | DatabaseUnavailable]]:
    before: Look | None = None
    while True:
        now: Look | DatabaseUnavailable
        try:
            now = Look(read_status(database), read_traffic(database))
        except DatabaseUnavailable as error:
            now = error
        yield before, now
        before = now if isinstance(now, Look) else None
        time.sleep(interval)


def _rates(before: Look | None, now: Look) -> tuple[float | None, float | None, dict[str, float]]:
    """Rows written and gone a second, and by how much each sink's due messages grew a second."""
    if before is None:
        return None, None, {}
    seconds = max(now.traffic.now - before.traffic.now, 0.001)
    due = {sink.name: sink.due for sink in before.status.sinks}
    growth = {sink.name: (sink.due - due.get(sink.name, 0)) / seconds for sink in now.status.sinks}
    written = (now.traffic.written - before.traffic.written) / seconds
    return written, (now.traffic.gone - before.traffic.gone) / seconds, growth


def _rate(rate: float | None, sign: str = "") -> str:
    return "-" if rate is None else f"{rate:{sign},.0f}/s"


def _summary(before: Look | None, now: Look) -> str:
    written, gone, _ = _rates(before, now)
    return (
        f"written {_rate(written)}, gone {_rate(gone)}, {counted(now.status.relays, 'relay')}, "
        f"{counted(now.status.unrouted, 'message')} without a route"
    )


def _lines(before: Look | None, now: Look | DatabaseUnavailable) -> Iterator[str]:
    if isinstance(now, DatabaseUnavailable):
        yield f"the database is away: {now}"
        return
    moment = datetime.fromtimestamp(now.traffic.now, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    yield f"{moment} {_summary(before, now)}"
    growth = _rates(before, now)[2]
    names = [title.lower().replace(" ", "_") for title in TITLES]
    for sink in now.status.sinks:
        facts = " ".join(f"{name}={value}" for name, value in zip(names, cells(sink), strict=True))
        yield f"{moment} {facts} growth={_rate(growth.get(sink.name), '+')}"


def _table(before: Look | None, now: Look | DatabaseUnavailable) -> RenderableType:
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    if isinstance(now, DatabaseUnavailable):
        return Text(f"the database is away: {now}")
    growth = _rates(before, now)[2]
    table = Table(*TITLES, "GROWTH", box=box.SIMPLE_HEAD)
    for sink in now.status.sinks:
        table.add_row(*map(Text, cells(sink)), _rate(growth.get(sink.name), "+"))
    return Group(table, Text(_summary(before, now)))
