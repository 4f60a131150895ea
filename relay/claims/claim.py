"""A claim, and what a settle writes back about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from relay.database.connection import EPOCH_2000_US
from sinks.base import Message

NO_HEADERS: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Claim:
    """Messages under one lease of ours, in id order."""

    token: UUID
    sink: str
    messages: list[Message]
    """To be sent."""
    places: list[bytes]
    """Where each row is (ctid), in the order of `messages`."""
    max_attempts: list[int | None]
    claimed_us: int
    size: int
    """Bytes of all payloads and bodies."""
    shards: tuple[int, ...] = (0,)
    """The shards that are claimed as a whole; (0,) for single rows."""
    shard_of: list[int] = field(default_factory=list)
    """Shard of each message; empty for single rows."""
    waiting: list[tuple[int, Message]] = field(default_factory=list)
    """Shard and message: not to be sent, as an earlier message of its key waits."""
    exhausted: list[tuple[int, Message]] = field(default_factory=list)
    """Shard and message: not to be sent, as its last attempt died with its relay."""
    stuck: dict[str, int] = field(default_factory=dict)
    """Keys with a row in relay.stuck_keys, and the id up to which they may be sent."""

    probes: dict[int, str] = field(default_factory=dict)
    """Ids of messages that were let go to find out whether their destination is available again, and its name."""

    @property
    def ids(self) -> list[int]:
        return [message.id for message in self.messages]

    @property
    def ordered(self) -> bool:
        return bool(self.shard_of)

    def lets_go(self, message: Message) -> bool:
        """Whether it may be sent although its destination is unavailable: it is a probe, or a stuck key's turn."""
        return message.id in self.probes or (message.key is not None and message.key in self.stuck)


class LostClaim(Exception):
    """The claim is no longer ours: the transaction that found out must not write anything."""


@dataclass(slots=True)
class StuckKey:
    """A key that may not go on."""

    shard: int
    key: str
    first: int
    """Id of its first message that was not delivered."""
    attempts: int
    after: float
    """Seconds that it waits at least."""
    reason: str
    counted: bool = True
    """Whether this was an attempt of that message."""
    blocked: bool = False
    """Whether that message is dead, and the key waits for a person."""
    destination: str | None = None
    """What that message waits for; None: for its next attempt."""


@dataclass(slots=True)
class Finding:
    """What one claim says of one destination."""

    reason: str = ""
    """Why it is unavailable."""
    refused: bool = False
    """Whether the broker said so now; False: its messages were held back, or delivered."""
    delivered: int = 0
    """How many of the claim's messages it took."""
    probe: bool = False
    """Whether one that it refused was let go to find out."""
    parked: bool = True
    """Whether its messages leave the ready index; else the sink's circuit holds them."""
    ids: list[int] = field(default_factory=list)
    """Messages to park: all but keyed ones of an ordered sink, which wait by their key."""
    news: bool = False
    """Whether it was not known before."""

    @property
    def works(self) -> bool:
        return self.delivered > 0 and not self.refused


@dataclass(slots=True)
class Verdict:
    """What a settle writes back, by what becomes of the messages."""

    delivered: list[int] = field(default_factory=list)
    """Positions in the claim."""
    retry: list[tuple[int, str, float]] = field(default_factory=list)
    """Message id, reason, at least so many seconds from now."""
    dead: list[tuple[int, str]] = field(default_factory=list)
    """Message id, reason."""
    held: list[tuple[float, str, list[int]]] = field(default_factory=list)
    """Seconds to wait, reason, message ids; the attempt does not count."""
    stuck: list[StuckKey] = field(default_factory=list)
    """Ordered sinks: keys whose first message was not delivered, or whose death blocks them."""
    waiting: list[tuple[int, Message]] = field(default_factory=list)
    """Ordered sinks: shard and message that waits for an earlier one of its key."""
    progressed: list[str] = field(default_factory=list)
    """Ordered sinks: stuck keys of which everything that might be sent is done with."""
    unknown: UUID | None = None
    """The claim's token, where what is dead or tried again may have been delivered all the same: it is kept."""
    trouble: str | None = None
    """Why the whole sink is unwell; None: it is not."""
    destinations: dict[str, Finding] = field(default_factory=dict)
    """What is new of single destinations, by name."""


def message_of(row: Sequence[Any]) -> Message:
    """The message in a row of claim_rows.sql or read_shards.sql; a row's place comes first and is left out.

    A first attempt comes as null: whatever is not null costs the server a tenth of a microsecond.
    """
    return Message(
        row[1], row[2], row[3], row[4], row[5], row[6] or NO_HEADERS, row[7], row[8] or 1, row[9] + EPOCH_2000_US,
        tuple(row[10]) if row[10] else (),
    )  # fmt: skip


def size_of(rows: Sequence[Sequence[Any]]) -> int:
    """Bytes of the payloads and bodies in such rows."""
    return sum(len(row[4] or b"") + len(row[5] or b"") for row in rows)
