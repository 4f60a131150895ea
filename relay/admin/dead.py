"""Dead messages: what a person may ask about them and do with them.

There may be a million. So everything goes by pages in id order, and each page that is changed is a transaction of its
own: stopped half way, it goes on where it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from psycopg import Connection

from relay.admin.values import text_of, time_of
from relay.database.connection import Database
from relay.database.locks import in_pieces
from relay.database.unreadable import Unreadable, headers_of
from relay.errors import DatabaseUnavailable, RelayError
from relay.statements import statement

BATCH_MESSAGES = 1000
SEARCH_S = 5.0
"""How long a batch may look for messages whose dedupe_key an open transaction writes."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Which dead messages; None leaves a question open."""

    ids: list[int] | None = None
    sink: str | None = None
    kind: str | None = None
    """Pattern: `*` stands for any run of characters, `?` for one."""
    error: str | None = None
    """A part of the error."""
    since: str | None = None
    """Died at this time or later, as PostgreSQL writes it."""
    until: str | None = None
    """Died before this time."""


class DeadMessage(NamedTuple):
    """A dead message without what it carries."""

    id: int
    sink: str
    kind: str
    key: str | None
    message_id: UUID
    attempts: int
    error: str
    created_at: datetime
    died_at: datetime


class Details(NamedTuple):
    """The rest of it."""

    max_attempts: int | None
    dedupe_key: str | None
    deaths: int
    """Claims of it that ended with their relay."""
    prior_tokens: list[UUID]
    past_errors: list[str]
    """Errors of earlier attempts, and why it was dead before, oldest first."""
    headers: Mapping[str, Any] | str | None
    """A text: they cannot be read, and this is why."""
    payload: str | None = None
    body: bytes | None = None


class Requeued(NamedTuple):
    """What became of a batch."""

    found: int
    """Still dead when their turn came."""
    ids: list[int]
    """Those that live again. The others stay dead: a live message has their dedupe_key, or one is being written."""


class Discarded(NamedTuple):
    """What became of a batch."""

    ids: list[int]
    """Those that were still there."""
    blocked: list[tuple[str, str]]
    """Sink and key of the keys that these messages blocked, and that still wait for a person."""


class Became(NamedTuple):
    """What became of requeued messages that have left the queue."""

    delivered: int
    arrived_before: int
    """An earlier claim had delivered them, so they were not sent again."""
    dead: int


def ago_or_at(database: Database, time: timedelta | datetime | None) -> str | None:
    """A point in time for `Filters`; a duration is subtracted from the database's clock."""
    if isinstance(time, timedelta):
        return str(database.query(statement("admin/dead/ago"), {"duration": time})[0][0])
    return time.isoformat() if time else None


def count(database: Database, filters: Filters) -> int:
    """How many there are."""
    return int(database.query(statement("admin/dead/dead_count"), asdict(filters))[0][0])


def pages(database: Database, filters: Filters, *, after: int = 0) -> Iterator[list[DeadMessage]]:
    """All of them of an id above `after`, in id order, a page at a time."""
    while True:
        parameters = {**asdict(filters), "after": after, "messages": BATCH_MESSAGES}
        rows = database.query(statement("admin/dead/dead_page"), parameters)
        page = [_message(row, database.encoding) for row in rows]
        if not page:
            return
        yield page
        after = page[-1].id


def find(database: Database, message: int, *, payload: bool) -> tuple[DeadMessage, Details] | None:
    """One of them, with what it carries where `payload` says so."""
    where = {"id": message}
    rows = database.query(statement("admin/dead/dead_message"), where)
    if not rows:
        return None
    size, encoding = len(DeadMessage._fields), database.encoding
    max_attempts, dedupe_key, deaths, tokens, past = rows[0][size:]
    headers = _headers(database, where)
    details = Details(max_attempts, text_of(dedupe_key, encoding), deaths, tokens, past, headers)
    if payload:
        text, body = database.query(statement("admin/dead/dead_payload"), where)[0]
        details = details._replace(payload=text_of(text, encoding), body=body)
    return _message(rows[0][:size], encoding), details


def _headers(database: Database, where: dict[str, Any]) -> Mapping[str, Any] | str | None:
    try:
        text = database.query(statement("admin/dead/dead_headers"), where)[0][0]
        return None if text is None else headers_of(text.decode(database.encoding, errors="replace").encode())
    except DatabaseUnavailable:
        raise
    except (RelayError, Unreadable) as error:
        return f"cannot be read: {error}"


def requeue(database: Database, ids: list[int], *, again: bool = False) -> Requeued:
    """Make them live again: the same id, sink and key; attempts start at 0. One whose dedupe_key an open transaction
    writes stays dead.

    Args:
        again: as a new generation, with a new message_id: what a broker knows of the old one counts no more.
    """

    def write(conn: Connection[Any], part: list[int]) -> tuple[int, list[int]]:
        row = conn.execute(statement("admin/dead/requeue"), {"ids": part, "again": again}).fetchone()
        found, moved = row or (0, [])
        return len(part) - found, moved

    done = in_pieces(database, write, ids, seconds=SEARCH_S)
    return Requeued(len(ids) - sum(gone for gone, _ in done), [one for _, moved in done for one in moved])


def discard(database: Database, ids: list[int]) -> Discarded:
    """Delete them for good."""
    rows = database.query(statement("admin/dead/discard"), {"ids": ids})
    encoding = database.encoding
    blocked = [(sink, text_of(key, encoding) or "") for _, sink, key in rows if sink is not None]
    return Discarded(rows[0][0] or [], blocked)


def left(database: Database, ids: list[int], sinks: list[str]) -> list[int]:
    """Those of these requeued messages that have not left the queue yet.

    Args:
        sinks: where they go.
    """
    return [row[0] for row in database.query(statement("admin/dead/dead_left"), {"ids": ids, "sinks": sinks})]


def became(database: Database, ids: list[int]) -> Became:
    """What became of these messages, which have left the queue."""
    dead, before = database.query(statement("admin/dead/dead_became"), {"ids": ids})[0]
    return Became(len(ids) - dead - before, before, dead)


def _message(row: tuple[Any, ...], encoding: str) -> DeadMessage:
    id, sink, kind, key, message_id, attempts, error, created_at, died_at = row
    kind, key = text_of(kind, encoding) or "", text_of(key, encoding)
    return DeadMessage(id, sink, kind, key, message_id, attempts, error, time_of(created_at), time_of(died_at))
