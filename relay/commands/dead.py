"""`relay dead list`, `show`, `requeue`, `discard`."""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import click

from relay.commands import Globals
from relay.commands.common import counted, database_of, print_json
from relay.commands.parameters import moment
from relay.errors import RelayError, UsageError
from relay.progress import progress

if TYPE_CHECKING:
    from relay.admin.dead import DeadMessage, Details, Filters
    from relay.database.connection import Database

TITLES = ("ID", "SINK", "KIND", "KEY", "ATTEMPTS", "DIED AT", "ERROR")
LINES = 100

F = TypeVar("F", bound=Callable[..., Any])


def _filters(command: F) -> F:
    """The options that choose dead messages."""
    for decorate in reversed(
        [
            click.argument("ids", nargs=-1, type=int, metavar="[ID]..."),
            click.option("--sink", metavar="NAME", help="Of this sink."),
            click.option("--kind", metavar="PATTERN", help="Of these kinds: * any run of characters, ? one."),
            click.option("--error", metavar="TEXT", help="Whose error contains this text."),
            click.option("--since", type=moment, metavar="TIME", help="Dead since: 2h (ago), or 2026-01-31T12:00:00Z."),
            click.option("--until", type=moment, metavar="TIME", help="Dead before, written in the same ways."),
            click.option("--all", "everything", is_flag=True, help="All of them."),
        ]
    ):
        command = decorate(command)
    return command


def _changes(command: F) -> F:
    """The options of whatever changes many messages."""
    for decorate in (
        click.option("--json", "as_json", is_flag=True, help="One JSON document."),
        click.option("--dry-run", is_flag=True, help="Only say how many."),
        click.option("--yes", is_flag=True, help="Do not ask."),
    ):
        command = decorate(command)
    return command


@click.group()
def dead() -> None:
    """List, show, requeue or discard messages that were given up."""


@dead.command("list")
@_filters
@click.option(
    "--limit", type=click.IntRange(1), help=f"At most so many. Default: {LINES}; with --all or --json: no limit."
)
@click.option("--after", type=int, default=0, help="Only ids above this one: the next page.", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="One JSON document: a list.")
@click.pass_obj
def list_(options: Globals, /, limit: int | None, after: int, as_json: bool, everything: bool, **asked: Any) -> None:
    """List dead messages in the order of their ids."""
    from relay.admin.dead import pages

    if limit is None and not (everything or as_json):
        limit = LINES
    with database_of(options, "relay dead list") as (database, settings):
        messages = (message for page in pages(database, _asked(database, **asked), after=after) for message in page)
        if as_json:
            _stream_json(islice(messages, limit))
            return
        rows = list(islice(messages, limit))
        more = next(messages, None) is not None
    if not rows:
        sink = asked["sink"]
        unknown = f": no sink is called {sink}" if sink is not None and sink not in settings.shards else ""
        click.echo(f"no dead messages{unknown}")
        return
    from relay.tables import print_table

    print_table(TITLES, [_row(message) for message in rows])
    if more:
        click.echo(f"there are more: --after {rows[-1].id}, or --all", err=True)


@dead.command()
@click.argument("id", type=int)
@click.option("--payload", is_flag=True, help="Show the payload too (base64 where it is no JSON).")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.pass_obj
def show(options: Globals, id: int, payload: bool, as_json: bool) -> None:
    """Show a dead message: where it should have gone, its headers, and every error."""
    from relay.admin.dead import find

    with database_of(options, "relay dead show") as (database, _):
        found = find(database, id, payload=payload)
    if found is None:
        raise RelayError(f"no dead message has the id {id}: it was requeued or discarded, or never was one")
    facts = _facts(*found, payload=payload)
    if as_json:
        print_json(facts)
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        for line in value if isinstance(value, list) else [value]:
            click.echo(f"{name:{width}}  {line if isinstance(line, str) else json.dumps(line, ensure_ascii=False)}")


@dead.command()
@_filters
@_changes
@click.pass_obj
def requeue(options: Globals, /, yes: bool, dry_run: bool, as_json: bool, everything: bool, **asked: Any) -> None:
    """Make dead messages live again.

    They keep their id, and so their place in the order; their message_id; and their errors. Their attempts start again.
    A message whose dedupe_key a live message has stays dead.
    """
    from relay.admin.dead import pages, requeue

    with database_of(options, "relay dead requeue") as (database, _):
        chosen, matched = _choose(database, "requeue", yes or dry_run, everything, asked)
        found = requeued = 0
        if not dry_run:
            with progress("requeued", matched) as advance:
                for page in pages(database, chosen):
                    batch = requeue(database, [message.id for message in page])
                    found, requeued = found + batch.found, requeued + batch.requeued
                    advance(len(page))
    skipped = found - requeued
    if as_json:
        print_json({"matched": matched, "requeued": requeued, "skipped": skipped, "dry_run": dry_run})
        return
    click.echo(
        f"would requeue {counted(matched, 'message')}" if dry_run else f"requeued {counted(requeued, 'message')}"
    )
    if skipped:
        click.echo(f"{counted(skipped, 'message')} stayed dead: a live message has the same dedupe_key")


@dead.command()
@_filters
@_changes
@click.pass_obj
def discard(options: Globals, /, yes: bool, dry_run: bool, as_json: bool, everything: bool, **asked: Any) -> None:
    """Delete dead messages for good."""
    from relay.admin.dead import discard, pages

    with database_of(options, "relay dead discard") as (database, _):
        chosen, matched = _choose(database, "discard", yes or dry_run, everything, asked)
        discarded = 0
        if not dry_run:
            with progress("discarded", matched) as advance:
                for page in pages(database, chosen):
                    discarded += discard(database, [message.id for message in page])
                    advance(len(page))
    if as_json:
        print_json({"matched": matched, "discarded": discarded, "dry_run": dry_run})
    else:
        what = (
            f"would discard {counted(matched, 'message')}" if dry_run else f"discarded {counted(discarded, 'message')}"
        )
        click.echo(what)


def _asked(
    database: Database, *, since: timedelta | datetime | None, until: timedelta | datetime | None, **asked: Any
) -> Filters:
    from relay.admin.dead import Filters, ago_or_at

    ids = list(asked.pop("ids")) or None
    return Filters(ids, since=ago_or_at(database, since), until=ago_or_at(database, until), **asked)


def _choose(database: Database, verb: str, sure: bool, everything: bool, asked: dict[str, Any]) -> tuple[Filters, int]:
    """Which messages, and how many; asks whether that is meant."""
    from relay.admin.dead import Filters, count

    chosen = _asked(database, **asked)
    if chosen == Filters() and not everything:
        raise UsageError(f"expected ids, a filter or --all, got none: relay dead {verb} --help")
    matched = count(database, chosen)
    if matched and not sure:
        question = f"{verb.capitalize()} {counted(matched, 'dead message')}? (--yes skips this question)"
        click.confirm(question, abort=True, err=True)
    return chosen, matched


def _row(message: DeadMessage) -> tuple[str, ...]:
    died_at = message.died_at.isoformat(timespec="seconds").replace("+00:00", "Z")
    error = " ".join(message.error.split())
    return (str(message.id), message.sink, message.kind, message.key or "", str(message.attempts), died_at, error)


def _stream_json(messages: Iterator[DeadMessage]) -> None:
    """A list that may be longer than what fits into memory."""
    separator = "[\n"
    for message in messages:
        sys.stdout.write(separator + json.dumps(_summary(message), ensure_ascii=False, default=str))
        separator = ",\n"
    sys.stdout.write("[]\n" if separator == "[\n" else "\n]\n")


def _summary(message: DeadMessage) -> dict[str, Any]:
    times = {"created_at": message.created_at.isoformat(), "died_at": message.died_at.isoformat()}
    return {**message._asdict(), **times}


def _facts(message: DeadMessage, details: Details, *, payload: bool) -> dict[str, Any]:
    facts = {**_summary(message), **details._asdict()}
    facts["message_id"] = str(message.message_id)
    facts["prior_tokens"] = [str(token) for token in details.prior_tokens]
    del facts["payload"], facts["body"]
    if payload and details.payload is not None:
        facts["payload"] = details.payload.decode()
    elif payload:
        facts["body"] = b64encode(details.body or b"").decode()
    return facts
