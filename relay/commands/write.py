"""`relay publish`, `relay enqueue`: messages by hand, one or a line each."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeVar
from uuid import UUID

import click

from relay.commands import Globals
from relay.commands.common import open_database, print_json
from relay.commands.parameters import header, moment
from relay.errors import InvalidMessage, RelayError, UsageError

if TYPE_CHECKING:
    from relay.config.settings import BaseSettings
    from relay.database.connection import Database

LINES = "-"
BATCH_LINES = 1000

POSITION = re.compile(r"(?:events|jobs)\[(\d+)\]\.")
"""How the write side says which of many messages an error is about."""

F = TypeVar("F", bound=Callable[..., Any])
Write = Callable[[Any, Sequence[Any]], Sequence[UUID | None]]


class Line(NamedTuple):
    """A line of standard input."""

    number: int
    text: bytes


def _common(command: F) -> F:
    """The options of both commands."""
    for decorate in (
        click.option("--json", "as_json", is_flag=True, help="One JSON document."),
        click.option("--sink", metavar="NAME", help="Skip the routes, send it there."),
        click.option(
            "--header",
            "headers",
            type=header,
            multiple=True,
            metavar="NAME=TEXT",
            help="A header; NAME:=JSON where the value is no text. May be repeated.",
        ),
        click.option("--key", metavar="TEXT", help="Ordering key."),
    ):
        command = decorate(command)
    return command


@click.command()
@click.argument("kind")
@click.argument("payload", default="{}", metavar="[PAYLOAD|-]")
@_common
@click.option("--message-id", type=click.UUID, metavar="UUID", help="Idempotency key. Default: a fresh one.")
@click.pass_obj
def publish(
    options: Globals,
    kind: str,
    payload: str,
    message_id: UUID | None,
    key: str | None,
    headers: Sequence[tuple[str, Any]],
    sink: str | None,
    as_json: bool,
) -> None:
    """Write a message; print its message id. PAYLOAD is JSON; -: one a line from standard input."""
    from relay.write.json_text import RawJson
    from relay.write.messages import Event
    from relay.write.outbox import publish_many

    if payload == LINES and message_id is not None:
        raise UsageError("expected one message with --message-id, got standard input")
    settings = _settings(options, sink)
    event = Event(kind, None, key, dict(headers) or None, message_id, sink)
    _write(settings, payload, as_json, publish_many, lambda text: event._replace(payload=RawJson(text)))


@click.command()
@click.argument("kind")
@click.argument("args", default="[]", metavar="[ARGS|-]")
@_common
@click.option("--run-at", type=moment, metavar="TIME", help="Not before: 5m (from now), or 2026-01-31T12:00:00Z.")
@click.option(
    "--max-attempts", type=click.IntRange(1), metavar="N", help="Dead after so many. Default: as its sink says."
)
@click.option("--dedupe-key", metavar="TEXT", help="Do nothing where a live message has it; then prints: duplicate.")
@click.pass_obj
def enqueue(
    options: Globals,
    kind: str,
    args: str,
    run_at: timedelta | datetime | None,
    max_attempts: int | None,
    dedupe_key: str | None,
    key: str | None,
    headers: Sequence[tuple[str, Any]],
    sink: str | None,
    as_json: bool,
) -> None:
    """Write a job; print its message id. ARGS is a JSON array; -: one a line from standard input."""
    from relay.write.json_text import RawJson
    from relay.write.messages import Job
    from relay.write.outbox import enqueue_many

    if args == LINES and dedupe_key is not None:
        raise UsageError("expected one job with --dedupe-key, got standard input")
    settings = _settings(options, sink)
    job = Job(kind, None, run_at, max_attempts, dedupe_key, dict(headers) or None, key, sink)
    _write(settings, args, as_json, enqueue_many, lambda text: job._replace(args=RawJson(text)))


def _settings(options: Globals, sink: str | None) -> BaseSettings:
    settings = options.base()
    if sink is not None and settings.shards and sink not in settings.shards:
        from relay.config.tree import nearest

        # Not an error: another relay's configuration may have it.
        click.echo(f'sink "{sink}" is not configured here ({nearest(sink, list(settings.shards))})', err=True)
    return settings


def _write(settings: BaseSettings, given: str, as_json: bool, many: Write, made: Callable[[str], Any]) -> None:
    # The schema's version is not asked for: a role that may only insert could not read it.
    with closing(open_database(settings, name="relay write")) as database:
        if given == LINES:
            _write_lines(database, as_json, many, made)
        else:
            _write_one(database, as_json, many, made(given))


def _write_one(database: Database, as_json: bool, many: Write, message: Any) -> None:
    try:
        with database.transaction() as conn:
            [message_id] = many(conn, [message])
    except InvalidMessage as error:
        raise UsageError(POSITION.sub("", str(error))) from error
    if as_json:
        print_json({"message_id": message_id})
    else:
        click.echo(_shown(message_id))


def _write_lines(database: Database, as_json: bool, many: Write, made: Callable[[str], Any]) -> None:
    """A transaction a batch: what was printed is committed, whatever comes after."""
    written: list[UUID | None] = []
    try:
        for batch in _batches(sys.stdin.buffer):
            with _told_by_line(batch), database.transaction() as conn:
                message_ids = many(conn, [made(line.text.decode()) for line in batch])
            if as_json:
                written += message_ids
            else:
                click.echo("\n".join(map(_shown, message_ids)))
    finally:
        if as_json:
            print_json([{"message_id": message_id} for message_id in written])


def _batches(stream: BinaryIO) -> Iterator[list[Line]]:
    lines = (Line(number, text.strip()) for number, text in enumerate(stream, 1) if text.strip())
    while batch := list(islice(lines, BATCH_LINES)):
        yield batch


@contextmanager
def _told_by_line(batch: list[Line]) -> Iterator[None]:
    """Say which line was wrong, and where to go on."""
    try:
        yield
    except (RelayError, UnicodeDecodeError) as error:
        position = POSITION.match(str(error))
        line = batch[int(position[1])].number if position else None
        text = f"line {line}: {POSITION.sub('', str(error))}" if position else str(error)
        if isinstance(error, UnicodeDecodeError):
            text = "expected lines of UTF-8"
        raise RelayError(f"{text}; nothing was written from line {batch[0].number} on") from error


def _shown(message_id: UUID | None) -> str:
    return str(message_id) if message_id else "duplicate"
