"""Durations and sizes, written and read."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.config.durations import LARGEST, LONGEST, format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("30s", 30.0),
        ("10m", 600.0),
        ("1h", 3_600.0),
        ("7d", 604_800.0),
        ("1.5H", 5_400.0),
        (" 2 s ", 2.0),
        ("30", 30.0),
        (30, 30.0),
        (0.25, 0.25),
        (0, 0.0),
        ("3650d", float(LONGEST)),
    ],
)
def test_durations(text: object, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "wrong", ["", "s", "1w", "-1s", "1h30m", "1e3s", "٣s", -1, math.nan, math.inf, True, None, [1]]
)
def test_what_is_no_duration(wrong: object) -> None:
    with pytest.raises(ValueError, match="a duration such as"):
        parse_duration(wrong)


@pytest.mark.parametrize("wrong", ["3651d", 10**500, 1e300, "9" * 400])
def test_a_duration_that_is_too_long(wrong: object) -> None:
    with pytest.raises(ValueError, match="at most 10 years"):
        parse_duration(wrong)


@pytest.mark.parametrize(
    ("text", "size"),
    [("4MiB", 4_194_304), ("256KiB", 262_144), ("1MB", 1_000_000), ("1.5kib", 1_536), ("77", 77), ("1 B", 1), (77, 77)],
)
def test_sizes(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("wrong", ["", "MiB", "4XB", "-1", math.nan, True, None])
def test_what_is_no_size(wrong: object) -> None:
    with pytest.raises(ValueError, match="a size such as"):
        parse_size(wrong)


@pytest.mark.parametrize("wrong", [0, "0MB", 1.5, "0.5B", "2GiB", 10**500])
def test_a_size_that_is_out_of_bounds(wrong: object) -> None:
    with pytest.raises(ValueError, match="a size of 1 to 2147483647 whole bytes"):
        parse_size(wrong)


@given(st.floats(min_value=0, max_value=LONGEST))
def test_every_duration_is_read_back_as_it_was(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.integers(min_value=1, max_value=LARGEST))
def test_every_size_is_read_back_as_it_was(size: int) -> None:
    assert parse_size(format_size(size)) == size


def test_the_shortest_spelling() -> None:
    assert [format_duration(s) for s in (0.25, 30.0, 600.0, 3_600.0, 86_400.0)] == [
        *("250ms", "30s", "10m", "1h", "1d")
    ]
    assert [format_size(s) for s in (1, 262_144, 4_194_304, 1_000_000)] == ["1B", "256KiB", "4MiB", "1MB"]
