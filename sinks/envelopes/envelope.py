"""What travels in place of a bare payload: the small contract between envelopes and the sinks that offer them.

`cloudevents.py` and `debezium.py` are the envelopes. A payload is spliced into one as text: its bytes stay as they are.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from sinks.base import Message


class BadEnvelope(Exception):
    """The envelope cannot hold this message. The text says why, without its data."""


class Enveloped(NamedTuple):
    """A message in its envelope."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, str | None]]
    """Names and texts; what the envelope keeps of the message's own included."""

    def as_message(self, message: Message) -> Message:
        """The message with this value as its payload and these headers, for a sink that writes its own fields."""
        return message._replace(payload=self.value, body=None, headers=dict(self.headers))


class Envelope(Protocol):
    """Puts messages into envelopes."""

    def wrap(self, message: Message) -> Enveloped:
        """
        Raises:
            BadEnvelope: it cannot hold the message.
        """
        ...

    def without_data(self, message: Message) -> Enveloped:
        """The same, with no value at all: what a compacted topic needs to forget a key.

        Raises:
            BadEnvelope: it cannot hold the message.
        """
        ...
