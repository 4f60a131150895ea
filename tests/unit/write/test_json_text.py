"""Values as JSON text: what is refused, under which name, and what stays as it was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from enum import IntEnum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay import Event, RawJson, set_json_default
from relay.errors import InvalidMessage, RelayError
from relay.write.json_text import check_text, json_text
from relay.write.messages import event_row

NUL = "expected text without the character U+0000 (NUL), got one at position 1"
HALF = "expected Unicode text, got half a surrogate pair (U+D800)"


class Level(IntEnum):
    HIGH = 3


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        ([], "[]"),
        ({"b": 1, "a": [1.0, True, "x"]}, '{"b":1,"a":[1.0,true,"x"]}'),
        ("zoë 😀", '"zoë 😀"'),
        ((1, 2), "[1,2]"),
        ({1: "a", None: "b"}, '{"1":"a","null":"b"}'),
        (1234567890123456789012345, "1234567890123456789012345"),
        (1e308, "1e+308"),
        (Level.HIGH, "3"),
        ("a \\u0000 b", '"a \\\\u0000 b"'),
        ("\x01", '"\\u0001"'),
    ],
)
def test_a_value_is_written_compactly(value: Any, text: str) -> None:
    assert json_text(value, "payload") == text


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("a\0", f"payload: {NUL}"),
        ({"a": "b\0"}, f"payload.a: {NUL}"),
        ({"a": "\ud800"}, f"payload.a: {HALF}"),
        ({"items": [0, 1, 2, {"name": "n\0"}]}, f"payload.items[3].name: {NUL}"),
        ({"a\0": 1}, f'payload["a\\u0000"]: {NUL}'),
        ({"x y": {"\ud800": 1}}, f'payload["x y"]["\\ud800"]: {HALF}'),
        ({"é": "a\0"}, f'payload["\\u00e9"]: {NUL}'),
        ({"a": float("nan")}, "payload.a: expected a finite number, got nan"),
        ([1.0, float("1e400")], "payload[1]: expected a finite number, got inf"),
        ({"a": [float("-inf")]}, "payload.a[0]: expected a finite number, got -inf"),
        ({float("nan"): 1}, "payload.nan: expected a finite number, got nan"),
        ({(1, 2): 1}, "payload: expected text as the name of a field, got tuple"),
    ],
)
def test_what_a_neighbour_would_refuse_is_refused_by_name(value: Any, fault: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        json_text(value, "payload")
    assert str(caught.value) == fault


def test_what_json_does_not_know_is_named_without_its_content() -> None:
    with pytest.raises(InvalidMessage, match=r"args\[1\]\.price: expected what JSON knows .* got Decimal$") as caught:
        json_text([1, {"price": Decimal("123.45")}], "args")
    assert "123" not in str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, RelayError)


def test_a_circle_and_a_deep_well_are_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    well: list[Any] = []
    for _ in range(100_000):
        well = [well]
    with pytest.raises(InvalidMessage, match="payload: expected JSON, got something nested too deeply"):
        json_text(circle, "payload")
    with pytest.raises(InvalidMessage, match="payload: expected JSON, got something nested too deeply"):
        json_text(well, "payload")
    with pytest.raises(InvalidMessage, match="payload: expected JSON, got something nested too deeply"):
        json_text(RawJson("[" * 100_000), "payload")


def test_a_number_that_python_will_not_write_is_refused_under_the_fields_name() -> None:
    with pytest.raises(InvalidMessage, match="payload: expected JSON: Exceeds the limit"):
        json_text({"a": 10**5000}, "payload")


SIGNED = '{"b":1,"a":1.0, "a":2,"n":1234567890123456789,"x":1e308,"m":0.1000,\n"u":"\\u00e9"}'


@pytest.mark.parametrize("text", [SIGNED, f"[{'9' * 5000}]", ' "x" ', '{"a":"b\\\\u0000"}'])
def test_raw_text_stays_as_it_is(text: str) -> None:
    written = json_text(RawJson(text), "payload")
    assert written == text
    assert type(written) is str


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"a":"b\\u0000"}', f"payload.a: {NUL}"),
        ('{"a":"\\ud800"}', f"payload.a: {HALF}"),
        ('{"a":"\ud800"}', f"payload.a: {HALF}"),
        ('{"a":"b\\u0000","a":1}', f"payload.a: {NUL}"),
        ('{"a":NaN}', "payload.a: expected a finite number, got nan"),
        ("[1,-Infinity]", "payload[1]: expected a finite number, got -inf"),
        ('{"a":1e400}', "payload.a: expected a finite number, got inf"),
        ("{'a':1}", "payload: expected JSON: "),
        ("", "payload: expected JSON: "),
        ('"a\0"', "payload: expected JSON: "),
        ("[1,]", "payload: expected JSON: "),
    ],
)
def test_raw_text_is_looked_through_all_the_same(text: str, fault: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        json_text(RawJson(text), "payload")
    assert str(caught.value).startswith(fault)


def test_plain_text_is_checked_too() -> None:
    check_text("zoë 😀", "key")
    with pytest.raises(InvalidMessage, match="key: expected text without"):
        check_text("\0", "key")
    with pytest.raises(InvalidMessage, match="key: expected Unicode"):
        check_text("\udfff", "key")


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None, exclude_categories=())),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=())), inner),
    max_leaves=12,
)


@given(ANYTHING)
def test_whatever_passes_can_be_read_by_anybody(value: Any) -> None:
    try:
        text = json_text(value, "payload")
    except InvalidMessage as error:
        assert str(error).startswith("payload")  # noqa: PT017 - most values pass
        return
    assert json.loads(text.encode().decode(), parse_constant=pytest.fail) == value
    strings = text.replace("\\\\", "")
    assert "\\u0000" not in strings
    assert json_text(RawJson(text), "payload") == text


@pytest.fixture
def hook() -> Iterator[None]:
    set_json_default(str)
    yield
    set_json_default(None)


@pytest.mark.usefixtures("hook")
def test_an_application_may_say_how_its_values_are_written() -> None:
    """UUID, Decimal, datetime, at any depth and in headers; what the hook answers is checked like everything else."""
    value = {"id": UUID(int=1), "total": Decimal("9.90"), "at": [date(2026, 1, 31)]}
    expected = '{"id":"00000000-0000-0000-0000-000000000001","total":"9.90","at":["2026-01-31"]}'
    assert json_text(value, "payload") == expected
    assert event_row(Event("k", value, headers=value)).headers == expected
    for bad in ({"a": Path("x\0")}, {"a": Path("x\ud800")}):
        with pytest.raises(InvalidMessage, match=r"payload\.a: expected"):
            json_text(bad, "payload")
    set_json_default(json.JSONEncoder().default)
    with pytest.raises(InvalidMessage, match="payload: expected JSON: Object of type UUID"):
        json_text(value, "payload")
