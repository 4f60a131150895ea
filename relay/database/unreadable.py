"""What a writer may put into a row and nobody can read: that one message's fault.

PostgreSQL takes more than its readers do: numbers of 131,072 digits, values nested thousands of levels deep, in some
databases any bytes as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sinks.base import read_headers

DEEPEST: Final = 100
"""Levels of lists and objects in headers: what every sink can write again."""

JSONB_VERSION: Final = 1
"""First byte of jsonb in PostgreSQL's binary format."""


class Unreadable(Exception):
    """It cannot be read. The text says why, without what it holds."""


def headers_of(binary: bytes) -> Mapping[str, Any]:
    """Headers from jsonb in PostgreSQL's binary format.

    Raises:
        Unreadable: Python, or a sink, could not handle them.
    """
    text = bytes(binary[1:]) if binary[:1] == bytes([JSONB_VERSION]) else bytes(binary)
    if text.count(b"{") + text.count(b"[") > DEEPEST and _depth(text) > DEEPEST:
        raise Unreadable(f"its headers are nested deeper than {DEEPEST} levels")
    try:
        found = read_headers(text)
    except UnicodeDecodeError as error:
        raise Unreadable("its headers are not valid UTF-8") from error
    except ValueError as error:
        # PostgreSQL has checked that it is JSON: what is left is the number of digits.
        raise Unreadable("its headers hold a number with more digits than can be read") from error
    if not isinstance(found, dict):
        raise Unreadable("its headers are not a JSON object")
    return found


def _depth(text: bytes) -> int:
    """Levels of lists and objects in JSON text."""
    depth = deepest = 0
    in_string = escaped = False
    for byte in text:
        if in_string:
            in_string = escaped or byte != 0x22
            escaped = byte == 0x5C and not escaped
        elif byte == 0x22:
            in_string = True
        elif byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest
