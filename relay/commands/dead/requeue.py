"""`relay dead requeue`, `discard`: what changes dead messages."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from relay.commands import Globals
from relay.commands.common import counted, database_of, print_json
from relay.commands.dead.choosing import asked_of, filters
from relay.errors import RelayError, UsageError
from relay.progress import progress

if TYPE_CHECKING:
    from relay.admin.dead import Became, Filters
    from relay.database.connection import Database

LOOK_EVERY_S = 0.5
LINES = 20

F = TypeVar("F", bound=Callable[..., Any])


def _changes(command: F) -> F:
    """The options of whatever changes many messages."""
    for decorate in (
        click.option("--json", "as_json", is_flag=True, help="One JSON document."),
        click.option("--dry-run", is_flag=True, help="Only say how many."),
        click.option("--yes", is_flag=True, help="Do not ask."),
    ):
        command = decorate(command)
    return command


@click.command()
@filters
@click.option("--again", is_flag=True, help="As new messages: a broker that has the old ones takes a second copy.")
@click.option("--wait", is_flag=True, help="Until they have left the queue, and say what became of them.")
@_changes
@click.pass_obj
def requeue(
    options: Globals,
    /,
    yes: bool,
    dry_run: bool,
    as_json: bool,
    everything: bool,
    again: bool,
    wait: bool,
    **asked: Any,
) -> None:
    """Make dead messages live again.

    They keep their id, and so their place in the order; their message_id; and their errors. Their attempts start again.
    A message whose dedupe_key a live message has stays dead.

    A message may have arrived although its last attempt was not finished. Where the broker can tell, it is then not
    sent again. With --again it is: it gets a new message_id, and nothing that a broker knows of it counts any more.
    """
    from relay.admin.dead import pages, requeue

    with database_of(options, "relay dead requeue") as (database, _):
        chosen, matched = _choose(database, "requeue", yes or dry_run, everything, asked)
        found, requeued, sinks = 0, list[int](), set[str]()
        if not dry_run:
            with progress("requeued", matched) as advance:
                for page in pages(database, chosen):
                    batch = requeue(database, [message.id for message in page], again=again)
                    found, requeued = found + batch.found, requeued + batch.ids
                    sinks.update(message.sink for message in page)
                    advance(len(page))
        outcome = _wait(database, requeued, sorted(sinks)) if wait and not dry_run else None
    skipped = found - len(requeued)
    if as_json:
        document = {"matched": matched, "requeued": len(requeued), "skipped": skipped, "dry_run": dry_run}
        print_json(document | (outcome._asdict() if outcome else {}))
    else:
        click.echo(
            f"would requeue {counted(matched, 'message')}"
            if dry_run
            else f"requeued {counted(len(requeued), 'message')}"
        )
        if skipped:
            click.echo(
                f"{counted(skipped, 'message')} stayed dead: a live message has the same dedupe_key, "
                "or an open transaction writes one"
            )
        if outcome:
            click.echo(
                f"delivered: {outcome.delivered:,}; had arrived before, not sent again: {outcome.arrived_before:,};"
                f" dead again: {outcome.dead:,}"
            )
    _check_all_found(asked["ids"], matched)


@click.command()
@filters
@_changes
@click.pass_obj
def discard(options: Globals, /, yes: bool, dry_run: bool, as_json: bool, everything: bool, **asked: Any) -> None:
    """Delete dead messages for good. A key that one of them blocks goes on waiting until it is released."""
    from relay.admin.dead import discard, pages

    with database_of(options, "relay dead discard") as (database, _):
        chosen, matched = _choose(database, "discard", yes or dry_run, everything, asked)
        discarded, blocked = 0, list[tuple[str, str]]()
        if not dry_run:
            with progress("discarded", matched) as advance:
                for page in pages(database, chosen):
                    batch = discard(database, [message.id for message in page])
                    discarded, blocked = discarded + len(batch.ids), blocked + batch.blocked
                    advance(len(page))
    blocked = list(dict.fromkeys(blocked))
    if as_json:
        keys = [{"sink": sink, "key": key} for sink, key in blocked]
        print_json({"matched": matched, "discarded": discarded, "dry_run": dry_run, "blocked_keys": keys})
    else:
        what = (
            f"would discard {counted(matched, 'message')}" if dry_run else f"discarded {counted(discarded, 'message')}"
        )
        click.echo(what)
        _say_blocked(blocked)
    _check_all_found(asked["ids"], matched)


def _choose(database: Database, verb: str, sure: bool, everything: bool, asked: dict[str, Any]) -> tuple[Filters, int]:
    """Which messages, and how many; asks whether that is meant."""
    from relay.admin.dead import Filters, count

    chosen = asked_of(database, **asked)
    if chosen == Filters() and not everything:
        raise UsageError(f"expected ids, a filter or --all, got none: relay dead {verb} --help")
    matched = count(database, chosen)
    if matched and not sure:
        question = f"{verb.capitalize()} {counted(matched, 'dead message')}? (--yes skips this question)"
        click.confirm(question, abort=True, err=True)
    return chosen, matched


def _check_all_found(ids: tuple[int, ...], matched: int) -> None:
    """
    Raises:
        RelayError: an id was given that no dead message has, or that the filters leave out.
    """
    missing = len(set(ids)) - matched
    if missing > 0:
        raise RelayError(
            f"expected {counted(len(set(ids)), 'dead message')} with these ids, found {matched}: the others were"
            " requeued or discarded, never were dead, or do not match the filters"
        )


def _say_blocked(blocked: list[tuple[str, str]]) -> None:
    from relay.admin.values import shown

    for sink, key in blocked[:LINES]:
        click.echo(f'key "{shown(key)}" of sink {sink} is still blocked: relay keys release --sink {sink} KEY')
    if len(blocked) > LINES:
        click.echo(f"and {counted(len(blocked) - LINES, 'key')} more: relay keys blocked")


def _wait(database: Database, ids: list[int], sinks: list[str]) -> Became:
    from relay.admin.dead import became, left

    waiting = ids
    with progress("left the queue", len(ids)) as advance:
        while waiting:
            now = left(database, waiting, sinks)
            advance(len(waiting) - len(now))
            waiting = now
            if waiting:
                time.sleep(LOOK_EVERY_S)
    return became(database, ids)
