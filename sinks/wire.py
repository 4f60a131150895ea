"""Texts on the wire that every sink writes the same way."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any


def json_text(value: Any) -> str:
    """`value` as compact JSON, non-ASCII characters as they are.

    Raises:
        ValueError: it holds NaN or Infinity, which no JSON reader has to take.
    """
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def header_text(value: Any) -> str:
    """A header's value: a string as it is, anything else as JSON text."""
    return value if isinstance(value, str) else json_text(value)


def rfc3339(microseconds: int) -> str:
    """Microseconds since 1970 as `2026-01-31T12:00:00.000000Z`."""
    second, fraction = divmod(microseconds, 1_000_000)
    return f"{_second(second)}.{fraction:06d}Z"


@lru_cache(maxsize=1024)
def _second(second: int) -> str:
    # Messages of a batch were written within few seconds: formatting a date costs more than all else here.
    return datetime.fromtimestamp(second, UTC).isoformat()[:19]
