"""The whole contract between the relay and a broker.

A sink gets a batch and says, message by message and in order, what became of it. It never retries,
never sleeps and never touches PostgreSQL: the relay alone decides what happens next. To write one:

1. subclass `Sink`, with an `Options` model for its own configuration keys;
2. name the class in the entry-point group ``outbox_relay.sinks``;
3. run the contract suite over it.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple
from uuid import UUID, uuid4

from pydantic import BaseModel, ConfigDict

from sinks.outcomes import (
    ARRIVED,
    DELIVERED,
    ClaimRevoked,
    Delivered,
    Hold,
    Outcome,
    Reject,
    Retry,
    SinkUnavailable,
)

__all__ = ["ARRIVED", "DELIVERED", "ClaimRevoked", "Delivered", "Hold", "Outcome", "Reject", "Retry", "SinkUnavailable"]


class BadOption(ValueError):
    """An option of the sink's own that does not go with its name, its order or its other options.

    Args:
        name: of the option.
        expected: what is right.
    """

    def __init__(self, name: str, expected: str) -> None:
        super().__init__(f"{name}: expected {expected}")
        self.name = name
        self.expected = expected


class BadClient(ValueError):
    """Options of `client` that the library does not take, or that would break a promise of the sink.

    Args:
        expected: what is right, by option.
    """

    def __init__(self, expected: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: expected {words}" for name, words in expected.items()))
        self.expected = dict(expected)


class Number(float):
    """A number in a header that keeps the digits it was written with, as `text`: a float alone would lose some."""

    def __init__(self, text: str) -> None:
        self.text = text


def read_headers(text: bytes | bytearray | str) -> Any:
    """Headers from JSON; a number with a fraction or an exponent becomes a `Number`."""
    return json.loads(text, parse_float=Number)


class Message(NamedTuple):
    """One row to deliver to one sink, as it was written. Exactly one of `payload`, `body` is set."""

    id: int
    kind: str
    key: str | None
    payload: bytes | None
    """JSON text, byte for byte as the application wrote it. Splice it; do not parse and dump it."""
    body: bytes | None
    """Anything that is not JSON: Avro, Protobuf, …"""
    headers: Mapping[str, Any]
    """As `read_headers` gives them."""
    message_id: UUID
    """The same for every copy that is ever sent: the idempotency key."""
    attempts: int
    """How often it has been claimed, this time included."""
    created_us: int
    """When it was written, by the database's clock: microseconds since 1970."""
    prior_tokens: tuple[UUID, ...] = ()
    """Tokens of earlier claims of this message whose outcome was never learnt."""

    @property
    def data(self) -> bytes:
        """The payload or the body, whichever the message has."""
        return self.payload if self.payload is not None else self.body or b""


def never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Batch:
    """The messages of one claim, in id order."""

    token: UUID
    """The claim's token. The same batch may be sent again under it when an answer was unknown."""
    messages: Sequence[Message]
    claimed_us: int
    """When they were claimed, by the database's clock: microseconds since 1970."""
    settled: Sequence[UUID] = ()
    """Earlier tokens of this sender that are settled for good: what was kept about them may go."""
    withdrawn: frozenset[int] = frozenset()
    """Ids of messages that are given up and must not be sent any more; only a fenced sink is given such. It sees to it
    that no earlier claim can deliver them from now on, and answers `Delivered(before=True)` for what one has delivered,
    `Reject` for the rest."""
    lost: Callable[[], bool] = field(default=never, compare=False)
    """True once the claim may belong to somebody else. A sink that sends in several steps asks before
    each one, and stops; what it answers for the rest is not used."""
    stopping: Callable[[], bool] = field(default=never, compare=False)
    """True once the relay was asked to stop. A sink that works on its messages for long asks before each one, begins no
    other, and answers `Hold` for the rest."""


class SinkOptions(BaseModel):
    """A sink's own configuration keys. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True)
class SinkConfig:
    """What a sink is made from."""

    name: str
    options: Any
    """An instance of the sink's own `Options`."""
    send_timeout: float = 10.0
    """Seconds. Every call to the broker must end within it."""
    ordered: bool = False
    """True where the relay promises order by key: no message may overtake an earlier one of its key that failed."""
    client: Mapping[str, Any] = field(default_factory=dict)
    """Options for the broker's client library, handed over as they are."""


class Sink(ABC):
    """One sender, used by one thread. A sink with four workers is four of these."""

    Options: ClassVar[type[SinkOptions]] = SinkOptions
    fenced: bool = False
    """True where the receiver itself refuses a stale sender, so that prior tokens are worth keeping."""
    largest: int | None = None
    """Bytes of a message beyond which this sink rejects it, whatever it holds; it is not read then. None: not known."""
    hand_over_s: ClassVar[int | None] = None
    """So many seconds before its time the broker can take a scheduled message, where an option `schedule` asks for it.
    The message then has its time, in seconds since 1970, in header `relay.at`."""

    def __init__(self, config: SinkConfig) -> None:
        self.config = config

    @classmethod
    def defaults(cls, options: Any) -> Mapping[str, Any]:
        """Other defaults, for these options, of keys that every sink has, such as `batch_messages`."""
        return {}

    def fingerprint(self) -> str:
        """What this sink sends to, in one line without secrets: where the broker is and how destinations are named.

        Two relays whose fingerprints of one sink differ would share its messages between two destinations. Options that
        only change how something is sent are not in it.
        """
        return f"{type(self).__module__}.{type(self).__qualname__}"

    @property
    def clients_replaced(self) -> int:
        """How often this object had to replace the client that it sends with, as that had failed for good. A metric
        counts it."""
        return 0

    @property
    def sole_destination(self) -> str | None:
        """The only topic, queue or stream that this sink sends to, as `Hold` names it; None: messages decide."""
        return None

    def destination(self, message: Message) -> str | None:
        """The topic, queue or stream that a message goes to, as `Hold` names it; None: not known before it is sent.
        Called by any thread, also before `open`: what goes to an unavailable destination is not sent."""
        return None

    def new_token(self) -> UUID:
        """A fresh token for the next claim. A sink that fences may have its own say in it."""
        return uuid4()

    def open(self) -> None:
        """Prepare to send. May be called again after `close`.

        Raises:
            SinkUnavailable: the broker cannot be reached now; the relay tries again later.
        """

    def ask(self) -> bool:
        """Ask the broker for a sign of life, while there is nothing to send. True: it answered; False: nobody can tell.

        Raises:
            SinkUnavailable: it did not answer.
        """
        return False

    @abstractmethod
    def send(self, batch: Batch) -> Sequence[Outcome]:
        """Send a batch; return one outcome a message, in order.

        Raises:
            SinkUnavailable: the whole broker is gone.
            ClaimRevoked: somebody else owns these messages by now.
        """

    def close(self) -> None:
        """Release connections. Never raises; may be called twice."""
