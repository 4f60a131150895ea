"""Messages as Debezium's outbox event router sends them to Kafka, so that its consumers need no change.

| of the record | is |
| --- | --- |
| topic | by default `outbox.event.` and header `aggregatetype` |
| key | the message's key (`aggregateid`), by `key_converter` |
| value | the payload, by `value_converter`; an empty body stands for a payload that is null |
| headers | `id` = the message id; then those of the option `headers`, as by `table.fields.additional.placement` |

The converters are Kafka Connect's: `StringConverter`, and `JsonConverter` without and with schemas. A body goes out as
it is, as by Debezium's `BinaryDataConverter`, or in base64 inside of JSON.

Source: Debezium 3.6.1, `io.debezium.transforms.outbox.EventRouterDelegate`; the tests run it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Final, Literal

from sinks.base import Message
from sinks.envelopes.envelope import Enveloped
from sinks.template import Template, TemplateError
from sinks.wire import json_text

Converter = Literal["string", "json", "json-schema"]

TOPIC: Final = Template("outbox.event.{header.aggregatetype}")
"""`route.topic.replacement` as it is by default."""

# The columns as Debezium's documentation lays the table out: all but the payload are "not null".
_KEY_SCHEMA = '{"type":"string","optional":false}'
_JSON_SCHEMA = '{"type":"string","optional":true,"name":"io.debezium.data.Json","version":1}'
_BYTES_SCHEMA = '{"type":"bytes","optional":true}'


class Debezium:
    """Makes what the event router makes.

    Args:
        headers: name → template of further headers; one that finds nothing in a message has no value.
    """

    def __init__(
        self,
        sink: str,
        *,
        key_converter: Converter = "string",
        value_converter: Converter = "string",
        headers: Mapping[str, Template],
    ) -> None:
        self._sink = sink
        self._key_converter = key_converter
        self._value_converter = value_converter
        self._headers = list(headers.items())

    def wrap(self, message: Message) -> Enveloped:
        return self.without_data(message)._replace(value=self._value(message))

    def without_data(self, message: Message) -> Enveloped:
        key = None if message.key is None else _convert(self._key_converter, message.key, _KEY_SCHEMA)
        headers: list[tuple[str, str | None]] = [("id", str(message.message_id))]
        headers += [(name, self._render(template, message)) for name, template in self._headers]
        return Enveloped(key, None, headers)

    def _render(self, template: Template, message: Message) -> str | None:
        try:
            return template.render(message, self._sink)
        except TemplateError:
            return None

    def _value(self, message: Message) -> bytes | None:
        converter = self._value_converter
        if not message.data:
            return _convert(converter, None, _JSON_SCHEMA)
        if converter == "string":
            return message.data
        if message.payload is not None:
            return _convert(converter, message.payload.decode(), _JSON_SCHEMA)
        return _convert(converter, base64.b64encode(message.data).decode(), _BYTES_SCHEMA)


def _convert(converter: Converter, text: str | None, schema: str) -> bytes | None:
    if converter == "string":
        return None if text is None else text.encode()
    quoted = "null" if text is None else _quoted(text)
    return (quoted if converter == "json" else f'{{"schema":{schema},"payload":{quoted}}}').encode()


_DIFFERENT = re.compile(r"\\u00|[\U00010000-\U0010ffff]")
_CHARACTER = re.compile(r"\\(?:u00([01][a-f])|.)|([\U00010000-\U0010ffff])")


def _quoted(text: str) -> str:
    """As a JSON string, byte for byte as Jackson writes it."""
    quoted = json_text(text)
    return _CHARACTER.sub(_as_jackson, quoted) if _DIFFERENT.search(quoted) else quoted


def _as_jackson(found: re.Match[str]) -> str:
    if found[1]:
        return f"\\u00{found[1].upper()}"
    if found[2]:
        high, low = divmod(ord(found[2]) - 0x10000, 0x400)
        return f"\\u{0xD800 + high:X}\\u{0xDC00 + low:X}"
    return found[0]
