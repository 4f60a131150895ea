"""Texts on the wire that every sink writes the same way."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any

from sinks.base import Number


def json_text(value: Any, *, ascii_only: bool = False) -> str:
    """`value` as compact JSON, non-ASCII characters as they are unless `ascii_only`.

    Raises:
        ValueError: it holds NaN or Infinity, which no JSON reader has to take.
    """
    return json.dumps(value, ensure_ascii=ascii_only, allow_nan=False, separators=(",", ":"))


def digits_kept(value: Any, *, ascii_only: bool = False) -> str:
    """The same, with each `Number` in it as it was written; slower."""
    write = partial(digits_kept, ascii_only=ascii_only)
    if isinstance(value, Number):
        return value.text
    if isinstance(value, dict):
        return f"{{{','.join(f'{write(name)}:{write(content)}' for name, content in value.items())}}}"
    if isinstance(value, list):
        return f"[{','.join(map(write, value))}]"
    return json_text(value, ascii_only=ascii_only)


def header_text(value: Any) -> str:
    """A header's value: a string as it is, anything else as JSON text."""
    return value if isinstance(value, str) else digits_kept(value)


def rfc3339(microseconds: int) -> str:
    """Microseconds since 1970 as `2026-01-31T12:00:00.000000Z`."""
    second, fraction = divmod(microseconds, 1_000_000)
    return f"{_second(second)}.{fraction:06d}Z"


@lru_cache(maxsize=1024)
def _second(second: int) -> str:
    # Messages of a batch were written within few seconds: formatting a date costs more than all else here.
    return datetime.fromtimestamp(second, UTC).isoformat()[:19]
