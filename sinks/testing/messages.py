"""Messages and batches to test a sink with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import uuid4

from sinks.base import Batch, Message

CREATED_US = 1_764_445_000_123_456
CLAIMED_US = CREATED_US + 1_000_000

PAYLOADS = [
    b'[{"b":1,"a":1.0,"a":2,"n":1234567890123456789,"x":1e308,"m":0.1000}]',
    b'[ {"spaces" :\n[ ] } ]',
    '["zoë 😀", "\\u0000", "\\ud800"]'.encode(),
    b"[]",
    b"[" + b"[" * 200 + b"]" * 200 + b"]",
]
"""Whatever rewrites JSON changes one of these."""


class Received(NamedTuple):
    """A message as the broker holds it."""

    id: str
    kind: str
    data: bytes


def message(number: int, **changes: Any) -> Message:
    """A message like any other; `number` is its row's id."""
    default = Message(
        id=number,
        kind="SendReceipt",
        key=None,
        payload=b'[%d, "payload"]' % number,
        body=None,
        headers={},
        message_id=uuid4(),
        attempts=1,
        created_us=CREATED_US + number,
    )
    return default._replace(**changes)


def batch(messages: Sequence[Message], **changes: Any) -> Batch:
    """A claim of these messages, under a token of its own."""
    return Batch(**{"token": uuid4(), "messages": messages, "claimed_us": CLAIMED_US, **changes})
