"""Values as JSON text that PostgreSQL, every broker and every consumer can read; what is not so is refused here.

JSON itself allows more than its neighbours do: a NUL (PostgreSQL's jsonb refuses it), half a surrogate pair (no UTF-8
can say it), 1e400 (infinite in most languages); and Python's encoder also writes NaN, which is no JSON at all.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any, Final

from relay.errors import InvalidMessage

_OPTIONS: Final[dict[str, Any]] = {"ensure_ascii": False, "allow_nan": False, "separators": (",", ":")}

_encode = json.JSONEncoder(**_OPTIONS).encode
_hooked = False


def set_json_default(default: Callable[[Any], Any] | None) -> None:
    """Let payloads, arguments and headers of this process hold values that JSON does not know.

    Args:
        default: as of `json.dumps`: answers what JSON knows for a value that it does not know, or raises `TypeError`.
            `str` serves for UUID, datetime and Decimal. None: refuse such values again.
    """
    global _encode, _hooked  # noqa: PLW0603 - a choice of the whole application
    _encode = json.JSONEncoder(**_OPTIONS, default=default).encode
    _hooked = default is not None


class RawJson(str):
    """JSON text to be stored and delivered as it is, byte for byte: a signed payload, for example."""

    __slots__ = ()


def json_text(value: Any, path: str) -> str:
    """The value as compact JSON text; a `RawJson` as it is.

    Args:
        path: what the value is called in an error: `payload`.

    Raises:
        InvalidMessage: it cannot be said in JSON, or holds what a neighbour would refuse; names the field.
    """
    try:
        return _checked(value, path) if isinstance(value, RawJson) else _encoded(value, path)
    except RecursionError as error:
        raise InvalidMessage(f"{path}: expected JSON, got something nested too deeply") from error


def check_text(value: str, path: str) -> None:
    """Refuse text that PostgreSQL could not store.

    Raises:
        InvalidMessage: it holds a NUL or half a surrogate pair.
    """
    _refuse_first(_text_faults(value, path))


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with all its pairs, those with the same name too."""


def _encoded(value: Any, path: str) -> str:
    try:
        text = _encode(value)
    except (TypeError, ValueError) as error:
        if not _hooked:
            _refuse_first(_faults(value, path))
        raise InvalidMessage(f"{path}: expected JSON: {error}") from error
    # An escaped backslash before "u0000" looks the same; then the closer look finds nothing.
    if "\\u0000" in text or not _encodable(text):
        _refuse_first(_faults(json.loads(text) if _hooked else value, path))
    return text


def _checked(text: RawJson, path: str) -> str:
    try:
        # Integers may have more digits than Python likes to convert; which ones does not matter here.
        value = json.loads(text, parse_int=lambda _: 0, object_pairs_hook=_Pairs)
    except ValueError as error:
        raise InvalidMessage(f"{path}: expected JSON: {error}") from error
    _refuse_first(_faults(value, path))
    return str(text)


def _refuse_first(faults: Iterator[str]) -> None:
    for fault in faults:
        raise InvalidMessage(fault)


def _faults(value: Any, path: str) -> Iterator[str]:
    """Everything in a value that must not leave, depth first."""
    if isinstance(value, str):
        yield from _text_faults(value, path)
    elif isinstance(value, float):
        if not math.isfinite(value):
            yield f"{path}: expected a finite number, got {value}"
    elif isinstance(value, (dict, _Pairs)):
        for key, inner in value.items() if isinstance(value, dict) else value:
            yield from _key_faults(key, path)
            yield from _faults(inner, path + _step(key))
    elif isinstance(value, (list, tuple)):
        for index, inner in enumerate(value):
            yield from _faults(inner, f"{path}[{index}]")
    elif value is not None and not isinstance(value, int):
        yield f"{path}: expected what JSON knows (text, number, true, false, null, array, object), got {_type(value)}"


def _key_faults(key: Any, path: str) -> Iterator[str]:
    if key is None or isinstance(key, (str, int, float)):
        yield from _faults(key, path + _step(key))
    else:
        yield f"{path}: expected text as the name of a field, got {_type(key)}"


def _text_faults(text: str, path: str) -> Iterator[str]:
    if "\0" in text:
        yield f"{path}: expected text without the character U+0000 (NUL), got one at position {text.index(chr(0))}"
    if not _encodable(text):
        yield f"{path}: expected Unicode text, got half a surrogate pair (U+{_surrogate(text):04X})"


def _encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _surrogate(text: str) -> int:
    return next(ord(character) for character in text if "\ud800" <= character <= "\udfff")


def _step(key: Any) -> str:
    name = str(key)
    return f".{name}" if name.isascii() and name.isidentifier() else f"[{json.dumps(name)}]"


def _type(value: Any) -> str:
    return type(value).__name__
