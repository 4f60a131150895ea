"""From a message to a Kafka record.

| part | is |
| --- | --- |
| key | the message's key, UTF-8; null where it has none |
| value | the payload or the body, byte for byte; null where the message is a tombstone |
| timestamp | when the message was claimed to be sent, by the database's clock; or, on request, when it was written |
| headers | `message_id`, `kind`, `created_at`, then the message's own: a string as it is, anything else as JSON text |

Headers of the message's own that are called so are left out. In an envelope, key, value and headers are the envelope's.

A *tombstone* makes a compacted topic forget a key: a message with an empty body and header `kafka.tombstone` = true.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from sinks.base import Message
from sinks.envelopes.envelope import Envelope
from sinks.kafka.client import Record
from sinks.template import Template
from sinks.wire import header_text, rfc3339

MESSAGE_ID: Final = "message_id"
KIND: Final = "kind"
CREATED_AT: Final = "created_at"
TOMBSTONE: Final = "kafka.tombstone"
RESERVED: Final = frozenset({MESSAGE_ID, KIND, CREATED_AT, TOMBSTONE})

_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")
_LONGEST_TOPIC = 249

# Lengths and attributes of a record, at their longest (43 bytes), and our headers' names, lengths, id and time.
_OVERHEAD = 192
_HEADER_OVERHEAD = 10


class BadTopic(Exception):
    """No Kafka could have a topic of this name."""


class BadTombstone(Exception):
    """The message asks to be a tombstone, and cannot be one."""


def to_record(
    message: Message, template: Template, sink: str, time_ms: int | None = None, envelope: Envelope | None = None
) -> Record:
    """
    Args:
        time_ms: the record's timestamp; None: when the message was written.

    Raises:
        BadTopic: the topic's name is not legal.
        TemplateError: the message lacks what the topic's name is made of.
        BadEnvelope: the envelope cannot hold the message.
        BadTombstone: it cannot be one.
    """
    topic = template.render(message, sink)
    problem = topic_problem(topic)
    if problem:
        raise BadTopic(problem)
    time_ms = message.created_us // 1000 if time_ms is None else time_ms
    tombstone = TOMBSTONE in message.headers and _is_tombstone(message)
    if envelope is not None:
        return _enveloped(message, topic, time_ms, envelope, tombstone=tombstone)
    kind = message.kind
    value = None if tombstone else message.data
    key = None if message.key is None else message.key.encode()
    headers: list[tuple[str, str | bytes | None]] = [
        (MESSAGE_ID, str(message.message_id)),
        (KIND, kind),
        (CREATED_AT, rfc3339(message.created_us)),
    ]
    size = _OVERHEAD + 4 * len(kind) + len(value or b"") + len(key or b"")
    if message.headers:
        for name, content in message.headers.items():
            if name not in RESERVED:
                encoded = header_text(content).encode()
                headers.append((name, encoded))
                size += _HEADER_OVERHEAD + 4 * len(name) + len(encoded)
    return Record(topic, value, key, time_ms, headers, size)


def _enveloped(message: Message, topic: str, time_ms: int, envelope: Envelope, *, tombstone: bool) -> Record:
    if TOMBSTONE in message.headers:
        message = message._replace(headers={n: c for n, c in message.headers.items() if n != TOMBSTONE})
    key, value, texts = envelope.without_data(message) if tombstone else envelope.wrap(message)
    headers: list[tuple[str, str | bytes | None]] = []
    size = _OVERHEAD + len(value or b"") + len(key or b"")
    for name, text in texts:
        encoded = None if text is None else text.encode()
        headers.append((name, encoded))
        size += _HEADER_OVERHEAD + 4 * len(name) + len(encoded or b"")
    return Record(topic, value, key, time_ms, headers, size)


def _is_tombstone(message: Message) -> bool:
    """
    Raises:
        BadTombstone: it asks to be one, and cannot be.
    """
    asked = message.headers[TOMBSTONE]
    if not isinstance(asked, bool):
        raise BadTombstone(f'header "{TOMBSTONE}" must be true or false')
    if asked and (message.payload is not None or message.body):
        raise BadTombstone(f'a message with header "{TOMBSTONE}" = true must have an empty body and no payload')
    if asked and message.key is None:
        raise BadTombstone(f'a message with header "{TOMBSTONE}" = true must have a key: it says what is deleted')
    return asked


@lru_cache(maxsize=4096)
def topic_problem(topic: str) -> str | None:
    """Why Kafka would not take this name; None where it would (`Topic.validate` of kafka-clients 4.1)."""
    if topic in {".", ".."}:
        return f'"{topic}" cannot be the name of a topic'
    if len(topic) > _LONGEST_TOPIC:
        return f"a topic's name has at most {_LONGEST_TOPIC} characters, not {len(topic)}"
    if not _LEGAL_TOPIC.fullmatch(topic):
        wrong = next((character for character in topic if not _LEGAL_TOPIC.fullmatch(character)), "")
        return f"a topic's name is made of a-z, A-Z, 0-9, '.', '_' and '-', and not of U+{ord(wrong):04X}"
    return None
