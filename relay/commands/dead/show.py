"""`relay dead`: `list` and `show`; what changes dead messages is in `requeue.py`."""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from relay.commands import Globals
from relay.commands.common import database_of, print_json
from relay.commands.dead.choosing import asked_of, filters
from relay.commands.dead.requeue import discard, requeue
from relay.errors import RelayError

if TYPE_CHECKING:
    from relay.admin.dead import DeadMessage, Details

TITLES = ("ID", "SINK", "KIND", "KEY", "ATTEMPTS", "DIED AT", "ERROR")
LINES = 100
LONGEST_TEXT, LONGEST_ERROR = 100, 500
"""Characters of a cell in the list."""


@click.group()
def dead() -> None:
    """List, show, requeue or discard messages that were given up."""


dead.add_command(requeue)
dead.add_command(discard)


@dead.command("list")
@filters
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
        messages = (message for page in pages(database, asked_of(database, **asked), after=after) for message in page)
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
    from relay.admin.values import shown

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
            text = line if isinstance(line, str) else json.dumps(line, ensure_ascii=False)
            click.echo(f"{name:{width}}  {shown(text)}")


def _row(message: DeadMessage) -> tuple[str, ...]:
    died_at = message.died_at.isoformat(timespec="seconds").replace("+00:00", "Z")
    error = " ".join(message.error.split())
    kind, key = _cut(message.kind), _cut(message.key or "")
    return (str(message.id), message.sink, kind, key, str(message.attempts), died_at, _cut(error, LONGEST_ERROR))


def _cut(text: str, longest: int = LONGEST_TEXT) -> str:
    """What fits into a table."""
    from relay.admin.values import shown

    return shown(text if len(text) <= longest else text[: longest - 1] + "…")


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
        facts["payload"] = details.payload
    elif payload:
        facts["body"] = b64encode(details.body or b"").decode()
    return facts
