"""From a message to a Kafka record.

| part | is |
| --- | --- |
| key | the message's key, UTF-8; null where it has none |
| value | the payload or the body, byte for byte |
| timestamp | when the message was written, in milliseconds |
| headers | `message_id`, `kind`, then the message's own: a string as it is, anything else as JSON text |

A header of the message's own that is called `message_id` or `kind` is left out. In an envelope, key, value and headers
are the envelope's.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from sinks.base import Message
from sinks.envelopes.envelope import Envelope
from sinks.kafka.client import Record
from sinks.template import Template
from sinks.wire import header_text

MESSAGE_ID: Final = "message_id"
KIND: Final = "kind"
RESERVED: Final = frozenset({MESSAGE_ID, KIND})

_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")
_LONGEST_TOPIC = 249

# Lengths and attributes of a record, at their longest (43 bytes), and the two headers' names, lengths and id.
_OVERHEAD = 128
_HEADER_OVERHEAD = 10


class BadTopic(Exception):
    """No Kafka could have a topic of this name."""


def to_record(message: Message, template: Template, sink: str, envelope: Envelope | None = None) -> Record:
    """
    Raises:
        BadTopic: the topic's name is not legal.
        TemplateError: the message lacks what the topic's name is made of.
        BadEnvelope: the envelope cannot hold the message.
    """
    topic = template.render(message, sink)
    problem = topic_problem(topic)
    if problem:
        raise BadTopic(problem)
    if envelope is not None:
        return _enveloped(message, topic, envelope)
    kind = message.kind
    value = message.body if message.payload is None else message.payload
    key = None if message.key is None else message.key.encode()
    headers: list[tuple[str, str | bytes | None]] = [(MESSAGE_ID, str(message.message_id)), (KIND, kind)]
    size = _OVERHEAD + 4 * len(kind) + len(value or b"") + len(key or b"")
    if message.headers:
        for name, content in message.headers.items():
            if name not in RESERVED:
                encoded = header_text(content).encode()
                headers.append((name, encoded))
                size += _HEADER_OVERHEAD + 4 * len(name) + len(encoded)
    return Record(topic, value, key, message.created_us // 1000, headers, size)


def _enveloped(message: Message, topic: str, envelope: Envelope) -> Record:
    key, value, texts = envelope.wrap(message)
    headers: list[tuple[str, str | bytes | None]] = []
    size = _OVERHEAD + len(value or b"") + len(key or b"")
    for name, text in texts:
        encoded = None if text is None else text.encode()
        headers.append((name, encoded))
        size += _HEADER_OVERHEAD + 4 * len(name) + len(encoded or b"")
    return Record(topic, value, key, message.created_us // 1000, headers, size)


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
