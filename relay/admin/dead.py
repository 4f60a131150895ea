"""Dead messages: what a person may ask about them and do with them.

There may be a million. So everything goes by pages in id order, and each page that is changed is a transaction of its
own: stopped half way, it goes on where it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from relay.database.connection import Database, us_since_1970
from relay.statements import statement

BATCH_MESSAGES = 1000


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
    headers: dict[str, Any] | None
    prior_tokens: list[UUID]
    past_errors: list[str]
    """Why it was dead before, oldest first."""
    payload: bytes | None
    body: bytes | None


class Requeued(NamedTuple):
    """What became of a batch."""

    found: int
    """Still dead when their turn came."""
    requeued: int
    """The others stay dead: a live message has their dedupe_key."""


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
        page = [_message(row) for row in database.query(statement("admin/dead/dead_page"), parameters)]
        if not page:
            return
        yield page
        after = page[-1].id


def find(database: Database, message: int, *, payload: bool) -> tuple[DeadMessage, Details] | None:
    """One of them, with what it carries where `payload` says so."""
    rows = database.query(statement("admin/dead/dead_message"), {"id": message, "payload": payload})
    size = len(DeadMessage._fields)
    return (_message(rows[0][:size]), Details(*rows[0][size:])) if rows else None


def requeue(database: Database, ids: list[int]) -> Requeued:
    """Make them live again, in one transaction: the same id, message_id, sink and key; attempts start at 0."""
    return Requeued(*database.query(statement("admin/dead/requeue"), {"ids": ids})[0])


def discard(database: Database, ids: list[int]) -> int:
    """Delete them for good; return how many were still there."""
    return database.run(statement("admin/dead/discard"), {"ids": ids})


def _message(row: tuple[Any, ...]) -> DeadMessage:
    return DeadMessage._make([*row[:-2], *map(_utc, row[-2:])])


def _utc(binary: int) -> datetime:
    return datetime.fromtimestamp(us_since_1970(binary) / 1_000_000, UTC)
