"""Durations and sizes as people write them: `"30s"` is 30.0 seconds, `"4MiB"` is 4194304 bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

LONGEST: Final = 3_650 * 86_400
"""Ten years of 365 days, in seconds. Longer is a slip of the pen; much longer leaves PostgreSQL's timestamp range."""

LARGEST: Final = 2**31 - 1
"""The largest count or size, so that every number fits PostgreSQL's `integer`."""

_SECONDS: Final = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3_600), "d": Decimal(86_400)}
_BYTES: Final = {
    **{unit: Decimal(1000**power) for power, unit in enumerate(("b", "kb", "mb", "gb"))},
    **{unit: Decimal(1024**power) for power, unit in enumerate(("b", "kib", "mib", "gib"))},
}
_QUANTITY: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)")


def parse_duration(value: object) -> float:
    """Seconds from `"500ms"`, `"30s"`, `"10m"`, `"1h"`, `"7d"` or a number of seconds.

    Raises:
        ValueError: not a duration, negative, or longer than ten years; the text says what was expected.
    """
    seconds = _amount(value, _SECONDS)
    if seconds is None:
        raise ValueError('a duration such as "500ms", "30s", "10m", "1h", "7d" or a number of seconds')
    if seconds > LONGEST:
        raise ValueError("a duration of at most 10 years")
    return float(seconds)


def parse_size(value: object) -> int:
    """Bytes from `"256KiB"`, `"4MiB"`, `"1MB"` or a number of bytes.

    Raises:
        ValueError: not a whole number of bytes between 1 and `LARGEST`; the text says what was expected.
    """
    size = _amount(value, _BYTES)
    if size is None:
        raise ValueError('a size such as "256KiB", "4MiB", "1MB" or a number of bytes')
    if not 1 <= size <= LARGEST or size % 1 != 0:
        raise ValueError(f"a size of 1 to {LARGEST} whole bytes")
    return int(size)


def format_duration(seconds: float) -> str:
    """The shortest exact spelling, which `parse_duration` reads back: 600.0 is `"10m"`."""
    return _spell(Decimal(repr(seconds)), ("d", "h", "m", "s", "ms"), _SECONDS, smallest="s")


def format_size(size: int) -> str:
    """The shortest exact spelling, which `parse_size` reads back: 4194304 is `"4MiB"`."""
    return _spell(Decimal(size), ("GiB", "MiB", "KiB", "GB", "MB", "KB"), _BYTES, smallest="B")


def _amount(value: object, units: Mapping[str, Decimal]) -> Decimal | None:
    """The value in seconds or bytes; None where it is no such quantity. A number without a unit counts as it is."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    match = _QUANTITY.fullmatch(value.strip() if isinstance(value, str) else format(Decimal(repr(value)), "f"))
    if match is None:
        return None
    number, unit = match.groups()
    factor = units.get(unit.lower()) if unit else Decimal(1)
    return None if factor is None else Decimal(number) * factor


def _spell(amount: Decimal, names: tuple[str, ...], units: Mapping[str, Decimal], smallest: str) -> str:
    for name in names:
        if amount % units[name.lower()] == 0:
            return f"{amount / units[name.lower()]:.0f}{name}"
    return f"{amount:f}{smallest}"
