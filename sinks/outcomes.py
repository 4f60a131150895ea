"""What a sink can say of a message, or of a whole batch. `base.py` hands all of it on."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Delivered:
    """The broker confirmed it."""

    before: bool = field(default=False, compare=False)
    """An earlier claim had delivered it, so it was not sent again."""


@dataclass(frozen=True, slots=True)
class Retry:
    """This message failed and may succeed later. Counts as an attempt, unless it says otherwise."""

    reason: str
    after: float = 0.0
    """At least this many seconds from now; the relay's own backoff may be longer."""
    counted: bool = True
    """False: it was not sent, or the broker failed for a moment, and what goes to the same destination works."""


@dataclass(frozen=True, slots=True)
class Reject:
    """No operator could make the broker take this message. It becomes dead at once."""

    reason: str


@dataclass(frozen=True, slots=True)
class Hold:
    """Its destination is unwell (missing, denied, throttled, full). Not the message's fault: not counted."""

    reason: str
    destination: str | None = None
    """The topic, queue or stream that is unwell; None where it is the whole broker."""


Outcome = Delivered | Retry | Reject | Hold

DELIVERED = Delivered()

ARRIVED = Delivered(before=True)


class SinkUnavailable(Exception):
    """The whole broker is gone; nothing in the batch is known to be delivered.

    `unknown` says whether it may have been delivered all the same (a time-out or a reset after the
    request left). A refused connection is known: nothing was sent.
    """

    def __init__(self, reason: str, *, unknown: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.unknown = unknown


class ClaimRevoked(Exception):
    """The broker knows a later claim of these messages: this sender is stale and must stop."""
