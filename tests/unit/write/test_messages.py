"""What an application may write: every field, what is refused of it, and how it is told."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from enum import Enum
from typing import Any
from uuid import UUID

import pytest

from relay import Event, Job, RawJson
from relay.errors import InvalidMessage
from relay.write.messages import Row, batches, columns, event_row, item, job_row

ID = UUID("0c9a1e3a-0000-4000-8000-00000000002a")


class Kind(str, Enum):  # noqa: UP042 - the older habit, whose str() is the name and not the text
    CREATED = "order.created"


class Nowhere(tzinfo):
    """A time zone that does not know how far it is from UTC."""

    def utcoffset(self, _: datetime | None) -> timedelta | None:
        return None

    dst = utcoffset

    def tzname(self, _: datetime | None) -> str | None:
        return None


def test_an_event_becomes_text_and_bytes() -> None:
    row = event_row(Event(Kind.CREATED, {"id": 42}, "42", {"a": 1}, ID, "orders"))
    assert row == Row("order.created", "42", '{"id":42}', None, '{"a":1}', str(ID), None, None, None, None, "orders")
    assert type(row.kind) is str


@pytest.mark.parametrize("payload", [b"\xff\xfe\x00", bytearray(b"\xff\xfe\x00"), memoryview(b"\xff\xfe\x00")])
def test_bytes_are_a_body(payload: Any) -> None:
    row = event_row(Event("k", payload))
    assert (row.payload, row.body) == (None, b"\xff\xfe\x00")


def test_null_is_a_payload() -> None:
    assert event_row(Event("k", None)).payload == "null"
    assert event_row(Event("k", RawJson(" null"))).payload == " null"


def test_message_ids_are_fresh_or_given() -> None:
    assert event_row(Event("k", 1)).message_id != event_row(Event("k", 1)).message_id
    assert event_row(Event("k", 1, message_id=str(ID).upper())).message_id == str(ID)


@pytest.mark.parametrize(
    ("run_at", "expected"),
    [
        (None, (None, None)),
        (timedelta(minutes=5), (None, 300.0)),
        (timedelta(days=1, microseconds=1), (None, 86400.000001)),
        (timedelta(seconds=-1), (None, -1.0)),
        (datetime(2026, 1, 31, 12, tzinfo=UTC), ("2026-01-31T12:00:00+00:00", None)),
        (datetime(2026, 1, 31, 12, tzinfo=timezone(timedelta(hours=2))), ("2026-01-31T10:00:00+00:00", None)),
        (datetime.max.replace(tzinfo=UTC), ("9999-12-31T23:59:59.999999+00:00", None)),
    ],
)
def test_a_time_is_a_point_or_a_delay(run_at: Any, expected: tuple[Any, Any]) -> None:
    row = job_row(Job("k", [], run_at))
    assert (row.run_at, row.delay) == expected


@pytest.mark.parametrize(
    ("run_at", "fault"),
    [
        (datetime(2026, 1, 31), "expected a datetime with a time zone, got one without"),  # noqa: DTZ001
        (datetime(2026, 1, 31, tzinfo=Nowhere()), "expected a datetime with a time zone, got one without"),
        (datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))), "expected a time in the years 1 to 9999"),
        (timedelta.max, "expected at most 36525 days, got 999999999"),
        (300, "expected a timedelta or a datetime with a time zone, got int"),
        (datetime(2026, 1, 31, tzinfo=UTC).date(), "expected a timedelta or a datetime with a time zone, got date"),
    ],
)
def test_a_time_that_could_be_misread_is_refused(run_at: Any, fault: str) -> None:
    with pytest.raises(InvalidMessage, match=f"^run_at: {re.escape(fault)}"):
        job_row(Job("k", [], run_at))


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"kind": ""}, "kind: expected 1 to 255 characters, got none"),
        ({"kind": "k" * 256}, "kind: expected 1 to 255 characters, got 256"),
        ({"kind": None}, "kind: expected 1 to 255 characters, got none"),
        ({"kind": "k\0"}, "kind: expected text without the character U+0000 (NUL), got one at position 1"),
        ({"key": 42}, "key: expected text, got int"),
        ({"key": "\ud800"}, "key: expected Unicode text, got half a surrogate pair (U+D800)"),
        ({"headers": [1]}, "headers: expected a mapping with text as names, got list"),
        ({"headers": {1: 1}}, "headers: expected a mapping with text as names, got dict"),
        ({"headers": {"a": "b\0"}}, "headers.a: expected text without the character U+0000 (NUL), got one at position"),
        ({"sink": "Orders"}, "sink: expected a sink's name"),
        ({"sink": "a,b"}, "sink: expected a sink's name"),
        ({"sink": ""}, "sink: expected a sink's name"),
        ({"dedupe_key": "é" * 513}, "dedupe_key: expected at most 1024 bytes, got 1026"),
        ({"dedupe_key": "\0"}, "dedupe_key: expected text without"),
        ({"max_attempts": 0}, "max_attempts: expected a whole number from 1 to 2147483647, got 0"),
        ({"max_attempts": 2**31}, "max_attempts: expected a whole number"),
        ({"max_attempts": True}, "max_attempts: expected a whole number"),
        ({"max_attempts": 1.0}, "max_attempts: expected a whole number"),
        ({"args": b"x"}, "args: expected what JSON knows"),
        ({"args": {"a": [1, "\0"]}}, "args.a[1]: expected text without"),
    ],
)
def test_every_field_of_a_job_is_checked(fields: dict[str, Any], fault: str) -> None:
    with pytest.raises(InvalidMessage, match=f"^jobs\\[3\\]\\.{re.escape(fault)}"):
        job_row(Job(**{"kind": "k", "args": [], **fields}), "jobs[3].")


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"kind": ""}, "kind: expected 1 to 255 characters, got none"),
        ({"key": b"42"}, "key: expected text, got bytes"),
        ({"payload": {"items": ["\0"]}}, "payload.items[0]: expected text without"),
        ({"headers": "a"}, "headers: expected a mapping with text as names, got str"),
        ({"message_id": "42"}, "message_id: expected a UUID, got a str that is none"),
        ({"message_id": 42}, "message_id: expected a UUID, got a int that is none"),
        ({"sink": "a b"}, "sink: expected a sink's name"),
    ],
)
def test_every_field_of_an_event_is_checked(fields: dict[str, Any], fault: str) -> None:
    with pytest.raises(InvalidMessage, match=f"^events\\[0\\]\\.{re.escape(fault)}"):
        event_row(Event(**{"kind": "k", "payload": 1, **fields}), "events[0].")


def test_the_limits_of_the_schema_are_allowed() -> None:
    job_row(Job("é" * 255, [], max_attempts=2**31 - 1, dedupe_key="é" * 512, sink="a" * 63, key="k" * 8100))


@pytest.mark.parametrize("given", [Event("k", 1), ("k", 1), ["k", 1], {"kind": "k", "payload": 1}])
def test_many_may_be_given_in_any_of_four_forms(given: Any) -> None:
    assert item(Event, given, "events[0]") == Event("k", 1)


@pytest.mark.parametrize(
    ("given", "got"),
    [
        ("k", "a str"),
        (("k",), "a tuple"),
        (None, "a NoneType"),
        ({"kind": "k"}, "the fields kind"),
        ({"kind": "k", "payload": 1, "keys": "2"}, "the fields kind, payload, keys"),
        ({1: 2}, "the fields 1"),
        (Job("k", [], None, 1, "d", None, "key", "sink"), "a Job"),
    ],
)
def test_other_forms_are_refused(given: Any, got: str) -> None:
    with pytest.raises(InvalidMessage, match=rf"^events\[7\]: expected Event\(kind, payload, .*\) .*, got {got}$"):
        item(Event, given, "events[7]")


def test_a_column_of_nulls_costs_nothing() -> None:
    found = columns([event_row(Event("a", 1)), event_row(Event("b", b"2", "key"))])
    assert (found["kind"], found["key"], found["payload"]) == (["a", "b"], [None, "key"], ["1", None])
    assert (found["sink"], found["headers"], found["delay"]) == (None, None, None)


def test_batches_hold_everything_once() -> None:
    rows = [event_row(Event(str(number), number)) for number in range(5)]
    assert [[row.kind for row in part] for part in batches(rows, 2)] == [["0", "1"], ["2", "3"], ["4"]]
