"""Texts that all sinks write the same way."""

from __future__ import annotations

import json
import pickle

import pytest

from sinks.base import read_headers
from sinks.wire import digits_kept, header_text, json_text, rfc3339


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
        (1_764_445_000_000_007, "2025-11-29T19:36:40.000007Z"),
        (-62_135_596_800_000_000, "0001-01-01T00:00:00.000000Z"),
    ],
)
def test_time_has_six_digits_and_is_utc(microseconds: int, text: str) -> None:
    assert rfc3339(microseconds) == text


@pytest.mark.parametrize(
    ("value", "text"), [("zoë", "zoë"), ("", ""), (1.5, "1.5"), (None, "null"), ({"a": ["ü"]}, '{"a":["ü"]}')]
)
def test_header_is_a_string_or_json(value: object, text: str) -> None:
    assert header_text(value) == text


@pytest.mark.parametrize(
    "text", ["1.10", "3.14159265358979323846", '{"a":[1.50,{"b":12345678901234567890}],"c":"ü","d":[],"e":null}']
)
def test_numbers_keep_their_digits(text: str) -> None:
    assert header_text(read_headers(text)) == text
    assert json.loads(digits_kept(read_headers(text), ascii_only=True)) == json.loads(text)


def test_a_number_with_digits_is_a_number() -> None:
    value = pickle.loads(pickle.dumps(read_headers("[1.10]")))
    assert value == [1.1]
    assert digits_kept(value) == "[1.10]"
    assert json.dumps(value) == "[1.1]"


def test_what_json_does_not_have_never_leaves() -> None:
    with pytest.raises(ValueError, match="JSON"):
        json_text(float("nan"))
