"""Messages as CloudEvents 1.0.

| attribute | is |
| --- | --- |
| `id`, `type`, `time` | message id, kind, time of writing |
| `source` | the sink's option; default `urn:outbox-relay:SINK` |
| `datacontenttype` | header `content-type`; without one `application/json`, of a body `application/octet-stream` |
| `partitionkey` | the key, where there is one that an attribute can hold |
| any other | a header whose name and value are legal for an attribute |

Other headers travel beside the event, as do `traceparent` and `tracestate` once more: tracing looks for them there.

Sources: cloudevents/spec v1.0.2, `spec.md`, `formats/json-format.md`, `bindings/kafka-protocol-binding.md`,
`extensions/partitioning.md`, `extensions/distributed-tracing.md`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, ValidationInfo

from sinks.base import Message, SinkConfig, SinkOptions
from sinks.envelopes.envelope import BadEnvelope, Enveloped
from sinks.wire import header_text, json_text, rfc3339

JSON_EVENT: Final = "application/cloudevents+json; charset=UTF-8"
CONTENT_TYPE: Final = "content-type"
TRACE: Final = frozenset({"traceparent", "tracestate"})
_TEXTS: Final = TRACE | {"subject", "dataschema"}

_OURS = frozenset({"specversion", "id", "source", "type", "time", "datacontenttype", "data", "partitionkey"})
# The specification asks for at most 20 characters, and some readers insist.
_NAME = re.compile(r"[a-z0-9]{1,20}")
# Control characters and what Unicode calls noncharacters.
_NONCHARACTERS = "".join(chr(plane + last) for plane in range(0, 0x110000, 0x10000) for last in (0xFFFE, 0xFFFF))
_ILLEGAL = re.compile(f"[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef{_NONCHARACTERS}]")
_URI_REFERENCE = re.compile(r"(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+")
_ABSOLUTE_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:.*")
# A reader takes what begins with application/cloudevents for a structured event.
_MEDIA_TYPE = re.compile(r"(?!(?i:application/cloudevents))[\w!#$&^.+-]+/[\w!#$&^.+-]+(?:\s*;[ -~]*)?", re.ASCII)
_JSON_TYPE = re.compile(r"[^;]*[/+](?i:json)\s*(?:;.*)?")


def _check_source(source: str | None, info: ValidationInfo) -> str | None:
    if source is None:
        return None
    if not _URI_REFERENCE.fullmatch(source):
        raise ValueError('a URI reference that is not empty, such as "https://example.com/shop" or "/shop"')
    if not info.data.get("envelope", "cloudevents").startswith("cloudevents"):
        raise ValueError("no source but with an envelope of CloudEvents")
    return source


Source = Annotated[str | None, AfterValidator(_check_source)]
"""The option `source`, behind the option `envelope`."""


def _check_structured(envelope: object) -> object:
    if envelope in {"cloudevents", "debezium"}:
        raise ValueError('"raw" or "cloudevents-structured", as only Kafka has a binding for the others')
    return envelope


class StructuredOptions(SinkOptions):
    """Keys of a sink for which CloudEvents has no binding: there an event can only be the payload, as JSON."""

    envelope: Annotated[Literal["raw", "cloudevents-structured"], BeforeValidator(_check_structured)] = "raw"
    source: Source = None


def structured(config: SinkConfig) -> CloudEvents | None:
    """The envelope that a sink with `StructuredOptions` is to use; None: the message as it is."""
    options: StructuredOptions = config.options
    return None if options.envelope == "raw" else CloudEvents(config.name, options.source, structured=True)


class CloudEvents:
    """Makes CloudEvents.

    Args:
        source: None for the default.
        structured: the event as one JSON document; else the payload as it is, and attributes as headers `ce_…`.
    """

    def __init__(self, sink: str, source: str | None, *, structured: bool) -> None:
        self._source = source or f"urn:outbox-relay:{sink}"
        self._structured = structured

    def wrap(self, message: Message) -> Enveloped:
        attributes, beside = self._attributes(message)
        key = None if message.key is None else message.key.encode()
        if self._structured:
            return Enveloped(key, _json_event(attributes, message), [(CONTENT_TYPE, JSON_EVENT), *beside])
        headers: list[tuple[str, str | None]] = [(CONTENT_TYPE, attributes.pop("datacontenttype"))]
        return Enveloped(key, message.data, headers + _as_headers(attributes) + beside)

    def without_data(self, message: Message) -> Enveloped:
        """Always in binary mode: there is no value that could hold a document."""
        attributes, beside = self._attributes(message)
        del attributes["datacontenttype"]
        key = None if message.key is None else message.key.encode()
        return Enveloped(key, None, _as_headers(attributes) + beside)

    def _attributes(self, message: Message) -> tuple[dict[str, Any], list[tuple[str, str | None]]]:
        """The event's attributes, and the headers beside it."""
        attributes = self._own_attributes(message)
        extensions, beside = _sort(message.headers) if message.headers else ({}, [])
        return attributes | extensions, beside

    def _own_attributes(self, message: Message) -> dict[str, Any]:
        kind, key = message.kind, message.key
        if found := _ILLEGAL.search(kind):
            raise BadEnvelope(f"kind: the type of a CloudEvent takes no U+{ord(found[0]):04X}")
        attributes = {
            "specversion": "1.0",
            "id": str(message.message_id),
            "source": self._source,
            "type": kind,
            "time": rfc3339(message.created_us),
            "datacontenttype": _content_type(message),
        }
        if key and not _ILLEGAL.search(key):
            attributes["partitionkey"] = key
        return attributes


def _as_headers(attributes: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    return [(f"ce_{name}", header_text(content)) for name, content in attributes.items()]


def _json_event(attributes: Mapping[str, Any], message: Message) -> bytes:
    beginning = json_text(attributes)[:-1].encode()
    if message.payload is not None:
        return b'%b,"data":%b}' % (beginning, message.payload)
    return b'%b,"data_base64":"%b"}' % (beginning, base64.b64encode(message.data))


def _content_type(message: Message) -> str:
    given = next((content for name, content in message.headers.items() if name.lower() == CONTENT_TYPE), None)
    if (
        isinstance(given, str)
        and _MEDIA_TYPE.fullmatch(given)
        and (message.body is not None or _JSON_TYPE.fullmatch(given))
    ):
        return given
    return "application/json" if message.body is None else "application/octet-stream"


def _sort(headers: Mapping[str, Any]) -> tuple[dict[str, Any], list[tuple[str, str | None]]]:
    """Which headers are attributes, and which travel beside the event."""
    attributes: dict[str, Any] = {}
    beside: list[tuple[str, str | None]] = []
    for name, content in headers.items():
        text = header_text(content)
        legal = _is_name(name) and content is not None and _is_legal(name, text)
        if legal:
            attributes[name] = text if name in _TEXTS else _typed(content, text)
        if name in TRACE or not (legal or _would_be_misread(name)):
            beside.append((name, text))
    return attributes, beside


@lru_cache(maxsize=1024)
def _is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None and name not in _OURS


def _is_legal(name: str, text: str) -> bool:
    if name == "dataschema":
        return _ABSOLUTE_URI.fullmatch(text) is not None and _URI_REFERENCE.fullmatch(text) is not None
    return text != "" and not _ILLEGAL.search(text)


def _typed(content: Any, text: str) -> str | int | bool:
    """As one of the types that attributes have: Boolean, Integer (of 32 bits), String."""
    if isinstance(content, bool) or (isinstance(content, int) and -(2**31) <= content < 2**31):
        return content
    return text


def _would_be_misread(name: str) -> bool:
    """Whether a reader would take it for a part of the event."""
    lower = name.lower()
    return lower == CONTENT_TYPE or lower.startswith("ce_")
