"""`relay reshard`."""

from __future__ import annotations

from functools import partial

import click

from relay.commands import Globals
from relay.commands.common import counted, database_of, print_json, unknown_sink
from relay.progress import progress

MOST = 1024
LONGEST_LOOK_S = 3600.0
"""Looking through a large table takes its time."""


@click.command()
@click.argument("sink")
@click.argument("shards", type=click.IntRange(0, MOST), metavar="N")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.pass_obj
def reshard(options: Globals, sink: str, shards: int, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Give a sink N shards, and move its messages to them. 0: without order.

    Writers go on meanwhile; deliveries to this sink pause. Interrupted, run it again. The configuration must then say
    the same; relays that run go on, unless the sink's order begins or ends: then they wait for their configuration.
    """
    from relay.admin import reshard as work

    say = partial(click.echo, err=True)
    moved = 0
    with database_of(options, "relay reshard", timeout=LONGEST_LOOK_S) as (database, settings):
        there = work.look(database, sink)
        if there is None:
            raise unknown_sink(database, sink)
        if dry_run:
            _show_plan(sink, there, shards, as_json)
            return
        if not yes:
            click.confirm(f"{_plan(sink, there, shards)}. Go on? (--yes skips this question)", abort=True, err=True)
        old = work.begin(database, sink, shards, say=say)
        if old is None:
            raise unknown_sink(database, sink)
        try:
            work.wait(database, sink, say=say)
            while True:
                with progress("pages", work.pages(database)) as advance:
                    for pages, messages in work.move(database, sink):
                        moved += messages
                        advance(pages)
                if work.finish(database, sink, shards):
                    break
        except BaseException:
            say(f'nothing is delivered to sink "{sink}" until this has finished: run it again')
            raise
    if as_json:
        print_json({"sink": sink, "before": old, "shards": shards, "moved": moved, "dry_run": False})
    else:
        click.echo(f'sink "{sink}" has {_words(shards)}; it had {_words(old)}; moved {counted(moved, "message")}')
    if settings.shards.get(sink) != shards:
        line = f'order = "key", shards = {shards}' if shards else 'order = "none"'
        say(f"the configuration must say the same now: [sinks.{sink}] {line}")
    if (old == 0) != (shards == 0):
        say("relays serve it once their configuration says so: change it, then send each SIGHUP, or restart it")


def _plan(sink: str, there: tuple[int, int], shards: int) -> str:
    old, messages = there
    return (
        f'Sink "{sink}" has {_words(old)} and {counted(messages, "message")}, and gets {_words(shards)}; nothing of it '
        "is delivered meanwhile"
    )


def _show_plan(sink: str, there: tuple[int, int], shards: int, as_json: bool) -> None:
    old, messages = there
    if as_json:
        print_json({"sink": sink, "before": old, "shards": shards, "messages": messages, "dry_run": True})
    else:
        click.echo(f"{_plan(sink, there, shards)}. Nothing was changed.")


def _words(shards: int) -> str:
    return counted(shards, "shard") if shards else "no order"
