"""Names of destinations, made from a message: `"{header.queue:default}"`.

| place | becomes |
| --- | --- |
| `{kind}` `{sink}` `{message_id}` | always there |
| `{key}` | the ordering key |
| `{header.NAME}` | a header's value: a string, a number or a boolean |

`{key:DEFAULT}` and `{header.NAME:DEFAULT}` say what stands there when the message has none. `{{` and `}}`
are braces.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from sinks.base import Message
from sinks.wire import digits_kept

Place = Callable[[Message, str], str]

PLACES = "{kind}, {key}, {sink}, {message_id}, {header.NAME}, {header.NAME:default}"

_PIECE = re.compile(r"(?P<brace>\{\{|\}\})|\{(?P<place>[^{}]*)\}|(?P<text>[^{}]+)|(?P<stray>[{}])")


class TemplateError(Exception):
    """The message lacks what the template asks for. The text names it, and holds none of the message's data."""


class Template:
    """A parsed template. Two are equal when their texts are.

    Raises:
        ValueError: a place is not known, or a brace has no partner; the text says what was expected.
    """

    def __init__(self, text: str) -> None:
        if not text:
            raise ValueError("a template that is not empty")
        self.text = text
        self._parts = _parse(text)
        self._constant = self._parts[0] if len(self._parts) == 1 and isinstance(self._parts[0], str) else None

    @property
    def constant(self) -> str | None:
        """The name, where it is the same for every message."""
        return self._constant

    @property
    def literals(self) -> list[str]:
        """What stands between the places."""
        return [part for part in self._parts if isinstance(part, str)]

    def render(self, message: Message, sink: str) -> str:
        """The name for this message.

        Raises:
            TemplateError: a header or the key is missing and has no default, or nothing at all is left.
        """
        if self._constant is not None:
            return self._constant
        name = "".join([part if isinstance(part, str) else part(message, sink) for part in self._parts])
        if not name:
            raise TemplateError(f'"{self.text}" gives an empty name')
        return name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Template) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Template({self.text!r})"

    def __str__(self) -> str:
        return self.text

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        parsed = core_schema.no_info_after_validator_function(cls, core_schema.str_schema(strict=True))
        return core_schema.json_or_python_schema(
            json_schema=parsed,
            python_schema=core_schema.union_schema([core_schema.is_instance_schema(cls), parsed], mode="left_to_right"),
            serialization=core_schema.to_string_ser_schema(when_used="always"),
        )


def _parse(text: str) -> list[str | Place]:
    parts: list[str | Place] = []
    for piece in _PIECE.finditer(text):
        if piece["stray"]:
            raise ValueError("a template whose braces come in pairs (a brace itself is written twice)")
        if piece["place"] is not None:
            parts.append(_place(piece["place"]))
            continue
        literal = piece["text"] or piece["brace"][0]
        last = parts[-1] if parts else None
        if isinstance(last, str):
            parts[-1] = last + literal
        else:
            parts.append(literal)
    return parts


def _place(source: str) -> Place:
    name, colon, after = source.partition(":")
    default = after if colon else None
    if name == "key":
        return _optional("key", "{" + source + "}", default, lambda message: message.key)
    if name.startswith("header.") and name != "header.":
        header = name.removeprefix("header.")
        return _optional(f'header "{header}"', "{" + source + "}", default, lambda message: message.headers.get(header))
    fixed = _FIXED.get(source)
    if fixed is None:
        raise ValueError(f"a template with {PLACES}; there is no {{{source}}}")
    return fixed


_FIXED: dict[str, Place] = {
    "kind": lambda message, sink: message.kind,
    "sink": lambda message, sink: sink,
    "message_id": lambda message, sink: str(message.message_id),
}


def _optional(what: str, place: str, default: str | None, value: Callable[[Message], Any]) -> Place:
    def text(message: Message, sink: str) -> str:
        found = value(message)
        if isinstance(found, str):
            return found
        if found is None:
            if default is None:
                raise TemplateError(f"{what} is missing, and {place} has no default")
            return default
        if isinstance(found, (int, float)):
            return digits_kept(found)
        raise TemplateError(f"{what} is not a text, as {place} needs it, but {type(found).__name__}")

    return text
