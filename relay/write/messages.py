"""What an application may write, checked before any SQL and turned into columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID, uuid4

from relay.errors import InvalidMessage
from relay.write.json_text import check_text, json_text

_SINK: Final = re.compile(r"[a-z0-9_-]{1,63}")
_LONGEST_DELAY: Final = timedelta(days=36_525)
_MAX_INTEGER: Final = 2**31 - 1


class Event(NamedTuple):
    """One message of `publish_many`; the fields are the arguments of `publish`."""

    kind: str
    payload: Any
    key: str | None = None
    headers: Mapping[str, Any] | None = None
    message_id: UUID | str | None = None
    sink: str | None = None


class Job(NamedTuple):
    """One message of `enqueue_many`; the fields are the arguments of `enqueue`."""

    kind: str
    args: Any
    run_at: timedelta | datetime | None = None
    max_attempts: int | None = None
    dedupe_key: str | None = None
    headers: Mapping[str, Any] | None = None
    key: str | None = None
    sink: str | None = None


class Row(NamedTuple):
    """A message as the database is given it: text, numbers and bytes, which every driver can pass."""

    kind: str
    key: str | None
    payload: str | None
    body: bytes | None
    headers: str | None
    message_id: str
    run_at: str | None
    delay: float | None
    max_attempts: int | None
    dedupe_key: str | None
    sink: str | None


_Item = TypeVar("_Item", Event, Job)


def item(made: type[_Item], given: Any, path: str) -> _Item:
    """An `Event` or a `Job` from one, from a mapping of its fields, or from a tuple of them in order.

    Raises:
        InvalidMessage: there are other fields, or some are missing.
    """
    try:
        if isinstance(given, made):
            return given
        if isinstance(given, Mapping):
            return made(**given)
        if isinstance(given, (tuple, list)):
            return made(*given)
    except TypeError:
        pass
    fields = ", ".join(made._fields)
    got = f"the fields {', '.join(map(str, given))}" if isinstance(given, Mapping) else f"a {type(given).__name__}"
    raise InvalidMessage(f"{path}: expected {made.__name__}({fields}) or a mapping or a tuple of these, got {got}")


def event_row(event: Event, path: str = "") -> Row:
    """The event as a row.

    Args:
        path: what stands before the fields' names in an error: `events[3].`.

    Raises:
        InvalidMessage: a field is not what it should be; names it.
    """
    binary = isinstance(event.payload, (bytes, bytearray, memoryview))
    return Row(
        kind=_kind(event.kind, f"{path}kind"),
        key=_text(event.key, f"{path}key"),
        payload=None if binary else json_text(event.payload, f"{path}payload"),
        body=bytes(event.payload) if binary else None,
        headers=_headers(event.headers, f"{path}headers"),
        message_id=_message_id(event.message_id, f"{path}message_id"),
        run_at=None,
        delay=None,
        max_attempts=None,
        dedupe_key=None,
        sink=_sink(event.sink, f"{path}sink"),
    )


def job_row(job: Job, path: str = "") -> Row:
    """The job as a row. Arguments and errors as for `event_row`."""
    run_at, delay = _when(job.run_at, f"{path}run_at")
    return Row(
        kind=_kind(job.kind, f"{path}kind"),
        key=_text(job.key, f"{path}key"),
        payload=json_text(job.args, f"{path}args"),
        body=None,
        headers=_headers(job.headers, f"{path}headers"),
        message_id=str(uuid4()),
        run_at=run_at,
        delay=delay,
        max_attempts=_attempts(job.max_attempts, f"{path}max_attempts"),
        dedupe_key=_dedupe_key(job.dedupe_key, f"{path}dedupe_key"),
        sink=_sink(job.sink, f"{path}sink"),
    )


def columns(rows: Sequence[Row]) -> dict[str, list[Any] | None]:
    """The rows turned into columns; a column of nothing but nulls is None, which costs nothing to send."""
    return {
        name: None if all(value is None for value in column) else list(column)
        for name, column in zip(Row._fields, zip(*rows, strict=True), strict=True)
    }


def batches(rows: Sequence[Row], size: int) -> Iterable[Sequence[Row]]:
    """The rows in slices of at most `size`."""
    return (rows[start : start + size] for start in range(0, len(rows), size))


def _text(value: Any, path: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidMessage(f"{path}: expected text, got {type(value).__name__}")
    check_text(value, path)
    # Not str(value): an enum that is text as well would answer its name.
    return str.__str__(value)


def _kind(value: Any, path: str) -> str:
    kind = _text(value, path)
    if kind is None or not 1 <= len(kind) <= 255:
        raise InvalidMessage(f"{path}: expected 1 to 255 characters, got {len(kind or '') or 'none'}")
    return kind


def _dedupe_key(value: Any, path: str) -> str | None:
    key = _text(value, path)
    if key is not None and len(key.encode()) > 1024:
        raise InvalidMessage(f"{path}: expected at most 1024 bytes, got {len(key.encode())}")
    return key


def _sink(value: Any, path: str) -> str | None:
    sink = _text(value, path)
    if sink is not None and not _SINK.fullmatch(sink):
        raise InvalidMessage(f"{path}: expected a sink's name (1 to 63 of a-z, 0-9, _, -), got something else")
    return sink


def _headers(value: Any, path: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise InvalidMessage(f"{path}: expected a mapping with text as names, got {type(value).__name__}")
    return json_text(dict(value), path)


def _message_id(value: Any, path: str) -> str:
    if value is None:
        return str(uuid4())
    try:
        return str(value if isinstance(value, UUID) else UUID(value))
    except (ValueError, AttributeError, TypeError) as error:
        raise InvalidMessage(f"{path}: expected a UUID, got a {type(value).__name__} that is none") from error


def _attempts(value: Any, path: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MAX_INTEGER:
        return int(value)
    raise InvalidMessage(f"{path}: expected a whole number from 1 to {_MAX_INTEGER}, got {value!r}")


def _when(value: Any, path: str) -> tuple[str | None, float | None]:
    """A point in time as text, or a delay in seconds, which the database adds to its own clock."""
    if value is None:
        return None, None
    if isinstance(value, timedelta):
        if abs(value) > _LONGEST_DELAY:
            raise InvalidMessage(f"{path}: expected at most {_LONGEST_DELAY.days} days, got {value.days}")
        return None, value.total_seconds()
    if not isinstance(value, datetime):
        raise InvalidMessage(f"{path}: expected a timedelta or a datetime with a time zone, got {type(value).__name__}")
    if value.utcoffset() is None:
        raise InvalidMessage(
            f"{path}: expected a datetime with a time zone, got one without: whose clock it means cannot be known. "
            "Use datetime.now(UTC), or a timedelta, which the database adds to its own clock"
        )
    try:
        return value.astimezone(UTC).isoformat(), None
    except OverflowError as error:
        raise InvalidMessage(f"{path}: expected a time in the years 1 to 9999, got one outside in UTC") from error
