"""The write side: messages into the outbox, in the caller's own transaction.

Every function takes the connection that the transaction is open on: of psycopg, SQLAlchemy, Django, asyncpg or
psycopg2. Given an asynchronous one it returns an awaitable of what is documented here. Nothing is committed, and
nothing is read back: a role that may only INSERT can use them all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, Protocol, overload
from uuid import UUID

from relay.statements import statement
from relay.write.awaiting import Awaited
from relay.write.connections import Call, Rows, run, spoil
from relay.write.messages import Event, Job, Row, batches, columns, event_row, item, job_row

BATCH_ROWS: Final = 1_000
"""Most messages in one statement."""


class AsyncConnection(Protocol):
    """What type checkers know an asynchronous connection (or session, or cursor) by."""

    def execute(self, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]: ...


@overload
def publish(
    conn: AsyncConnection,
    kind: str,
    payload: Any,
    *,
    key: str | None = None,
    headers: Mapping[str, Any] | None = None,
    message_id: UUID | str | None = None,
    sink: str | None = None,
    require_transaction: bool = True,
) -> Awaitable[UUID]: ...
@overload
def publish(
    conn: object,
    kind: str,
    payload: Any,
    *,
    key: str | None = None,
    headers: Mapping[str, Any] | None = None,
    message_id: UUID | str | None = None,
    sink: str | None = None,
    require_transaction: bool = True,
) -> UUID: ...
def publish(
    conn: Any,
    kind: str,
    payload: Any,
    *,
    key: str | None = None,
    headers: Mapping[str, Any] | None = None,
    message_id: UUID | str | None = None,
    sink: str | None = None,
    require_transaction: bool = True,
) -> UUID | Awaitable[UUID]:
    """Write an event; return its message id.

    Args:
        conn: a connection, session or cursor whose transaction the message joins; for Django an alias, too.
        kind: what it is, 1 to 255 characters: `order.created`. The routes decide by it where the message goes.
        payload: anything that JSON can say; a `RawJson` goes out byte for byte; `bytes` are for what is not JSON.
        key: ordering key.
        headers: further facts for the consumer, JSON values by name.
        message_id: the idempotency key, the same on every copy that is ever sent. Default: a fresh one.
        sink: skip the routes, send it there.
        require_transaction: refuse a connection that would commit the message at once, and alone.

    Raises:
        InvalidMessage: a field that the database or a broker would refuse; named. Nothing was sent to the database.
        NoTransaction: the connection would commit at once.
        UsageError: not a connection that can be written through.
    """
    rows = [event_row(Event(kind, payload, key, headers, message_id, sink))]
    one: UUID | Awaitable[UUID] = _write(conn, rows, require_transaction, lambda ids: ids[0])
    return one


@overload
def enqueue(
    conn: AsyncConnection,
    kind: str,
    args: Any,
    *,
    run_at: timedelta | datetime | None = None,
    max_attempts: int | None = None,
    dedupe_key: str | None = None,
    headers: Mapping[str, Any] | None = None,
    key: str | None = None,
    sink: str | None = None,
    require_transaction: bool = True,
) -> Awaitable[UUID | None]: ...
@overload
def enqueue(
    conn: object,
    kind: str,
    args: Any,
    *,
    run_at: timedelta | datetime | None = None,
    max_attempts: int | None = None,
    dedupe_key: str | None = None,
    headers: Mapping[str, Any] | None = None,
    key: str | None = None,
    sink: str | None = None,
    require_transaction: bool = True,
) -> UUID | None: ...
def enqueue(
    conn: Any,
    kind: str,
    args: Any,
    *,
    run_at: timedelta | datetime | None = None,
    max_attempts: int | None = None,
    dedupe_key: str | None = None,
    headers: Mapping[str, Any] | None = None,
    key: str | None = None,
    sink: str | None = None,
    require_transaction: bool = True,
) -> UUID | Awaitable[UUID | None] | None:
    """Write a job; return its message id, or None where a live message has its `dedupe_key` already.

    Args:
        args: the job's arguments: an array as it is, anything else as the only argument.
        run_at: not before then. A `timedelta` is added to the database's clock; a `datetime` must have a time zone.
        max_attempts: dead after so many. Default: as its sink says.
        dedupe_key: at most one live message of a sink has it, at most 1024 bytes.

    The other arguments, and the errors, are those of `publish`.
    """
    rows = [job_row(Job(kind, args, run_at, max_attempts, dedupe_key, headers, key, sink))]
    one: UUID | Awaitable[UUID | None] | None = _write(conn, rows, require_transaction, lambda ids: ids[0])
    return one


@overload
def publish_many(  # type: ignore[overload-overlap]
    conn: AsyncConnection,
    events: Iterable[Event | Mapping[str, Any] | tuple[Any, ...]],
    *,
    require_transaction: bool = True,
) -> Awaitable[list[UUID]]: ...
@overload
def publish_many(
    conn: object,
    events: Iterable[Event | Mapping[str, Any] | tuple[Any, ...]],
    *,
    require_transaction: bool = True,
) -> list[UUID]: ...
def publish_many(
    conn: Any,
    events: Iterable[Event | Mapping[str, Any] | tuple[Any, ...]],
    *,
    require_transaction: bool = True,
) -> list[UUID] | Awaitable[list[UUID]]:
    """Write many events, a thousand in a statement; return their message ids, in order.

    Args:
        events: each an `Event`, a mapping of its fields or a tuple of them in order. All are checked before any
            is sent.

    The errors are those of `publish`, with the event's position before the field: `events[3].payload`.
    """
    rows = [
        event_row(item(Event, event, f"events[{position}]"), f"events[{position}].")
        for position, event in enumerate(events)
    ]
    ids: list[UUID] | Awaitable[list[UUID]] = _write(conn, rows, require_transaction)
    return ids


@overload
def enqueue_many(  # type: ignore[overload-overlap]
    conn: AsyncConnection,
    jobs: Iterable[Job | Mapping[str, Any] | tuple[Any, ...]],
    *,
    require_transaction: bool = True,
) -> Awaitable[list[UUID | None]]: ...
@overload
def enqueue_many(
    conn: object,
    jobs: Iterable[Job | Mapping[str, Any] | tuple[Any, ...]],
    *,
    require_transaction: bool = True,
) -> list[UUID | None]: ...
def enqueue_many(
    conn: Any,
    jobs: Iterable[Job | Mapping[str, Any] | tuple[Any, ...]],
    *,
    require_transaction: bool = True,
) -> list[UUID | None] | Awaitable[list[UUID | None]]:
    """Write many jobs, a thousand in a statement; return a message id each, in order, or None for a duplicate.

    Args:
        jobs: each a `Job`, a mapping of its fields or a tuple of them in order. All are checked before any
            is sent.

    The errors are those of `publish`, with the job's position before the field: `jobs[3].args`.
    """
    rows = [job_row(item(Job, job, f"jobs[{position}]"), f"jobs[{position}].") for position, job in enumerate(jobs)]
    ids: list[UUID | None] | Awaitable[list[UUID | None]] = _write(conn, rows, require_transaction)
    return ids


def _write(
    conn: Any,
    rows: list[Row],
    require_transaction: bool,
    answer: Callable[[list[UUID | None]], Any] = lambda ids: ids,
) -> Any:
    """Write the rows; return what `answer` makes of their message ids, None for a duplicate, or an awaitable of it."""
    parts = list(batches(rows, BATCH_ROWS))
    calls = [_call(part) for part in parts]

    def ids(answers: list[Rows]) -> list[UUID | None]:
        found: list[UUID | None] = []
        for part, call, found_rows in zip(parts, calls, answers, strict=True):
            texts = [row[0] for row in found_rows] if call.answers else [row.message_id for row in part]
            found += [UUID(text) if text else None for text in texts]
        return found

    done = run(conn, calls, require_transaction=require_transaction)
    return (
        answer(ids(done)) if isinstance(done, list) else Awaited(_later(done, ids, answer), partial(_drop, conn, done))
    )


def _call(rows: Sequence[Row]) -> Call:
    # Only the database knows what is a duplicate. Without a dedupe_key the ids are known here, and nothing comes back.
    dedupe = any(row.dedupe_key is not None for row in rows)
    return Call(
        statement("write/enqueue_messages" if dedupe else "write/insert_messages"), columns(rows), answers=dedupe
    )


async def _later(done: Awaitable[list[Rows]], ids: Callable[[list[Rows]], Any], answer: Callable[[Any], Any]) -> Any:
    return answer(ids(await done))


def _drop(conn: Any, done: Coroutine[Any, Any, list[Rows]]) -> None:
    done.close()
    spoil(conn)
