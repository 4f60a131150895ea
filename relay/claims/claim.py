"""A claim, and what a settle writes back about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from relay.database.connection import EPOCH_2000_US
from relay.database.unreadable import Unreadable, headers_of
from relay.statements import statement
from sinks.base import Message

NO_HEADERS: Mapping[str, Any] = {}

EXHAUSTED = "its last attempt was not finished: the relay that held it was gone for longer than the lease"

EARLIEST, LATEST = -63_082_281_600_000_000, 252_455_616_000_000_000
"""The years 1 to 9999 in microseconds from 2000, as PostgreSQL counts them."""


class Unread(NamedTuple):
    """What is known of a message before its data is read."""

    size: int
    """Bytes of what it carries, as they are stored."""
    upto: int | None = None
    """Of a stuck key: the id up to which it might be sent when this message was claimed."""


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
    unsent: dict[int, str] = field(default_factory=dict)
    """Messages, by id, that are given up without being sent, and why: what they hold cannot be read, or their last
    attempt died with its relay."""
    unread: Unread | None = None
    """Of a message that is claimed alone, and whose data has to be read first; None: everything is there."""
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


class AlreadyEnded(Exception):
    """An earlier try has ended this claim and written its outcomes, though its answer was lost."""


class Ending:
    """Ends one worker's claims, and knows one again that it has ended without hearing so."""

    def __init__(self) -> None:
        self._last: tuple[UUID, str] | None = None
        """The token and the transaction of the last try."""

    def end(self, conn: psycopg.Connection[Any], token: UUID) -> None:
        """End a claim inside a settle's transaction.

        Raises:
            LostClaim: somebody else has ended it.
            AlreadyEnded: we have.
        """
        row = conn.execute(statement("settle/end_claim"), {"token": token}).fetchone()
        if row is not None:
            self._last = (token, row[0])
        elif self._last is not None and self._last[0] == token and self._is_committed(conn, self._last[1]):
            raise AlreadyEnded
        else:
            raise LostClaim

    def _is_committed(self, conn: psycopg.Connection[Any], transaction: str) -> bool:
        row = conn.execute(statement("settle/was_committed"), {"transaction": transaction}).fetchone()
        return bool(row and row[0])


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
    arrived: list[Message] = field(default_factory=list)
    """Of those that are delivered: these were so by an earlier claim, and were not sent again."""
    retry: list[tuple[int, str, float]] = field(default_factory=list)
    """Message id, reason, at least so many seconds from now."""
    dead: list[tuple[int, str]] = field(default_factory=list)
    """Message id, reason."""
    untried: set[int] = field(default_factory=set)
    """Of those that are dead: these were not sent any more, so that this claim was no attempt of theirs."""
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

    def failed(self) -> list[tuple[int, str]]:
        """Id and reason of the messages whose attempt failed and that are tried again."""
        heads = [(key.first, key.reason) for key in self.stuck if key.counted and not key.blocked]
        return [(message_id, reason) for message_id, reason, _ in self.retry] + heads


def message_of(row: Sequence[Any], unsent: dict[int, str]) -> Message:
    """The message in a row of claim_rows.sql or read_shards.sql; a row's place comes first and is left out.

    A first attempt comes as null: whatever is not null costs the server a tenth of a microsecond.

    Args:
        unsent: takes the message's id and the reason where it holds what cannot be read.
    """
    headers = NO_HEADERS
    if row[6] is not None:
        try:
            headers = headers_of(row[6])
        except Unreadable as error:
            unsent[row[1]] = str(error)
    if not EARLIEST < row[9] < LATEST:
        unsent[row[1]] = "its created_at is not between the years 1 and 9999"
    return Message(
        row[1], row[2], row[3], row[4], row[5], headers, row[7], row[8] or 1, row[9] + EPOCH_2000_US,
        tuple(row[10]) if row[10] else (),
    )  # fmt: skip


def is_exhausted(row: Sequence[Any], max_attempts: int) -> bool:
    """Whether its last attempt died with its relay, so that this claim is one too many.

    Args:
        max_attempts: of a message that names none.
    """
    return row[12] is not None and (row[8] or 1) > (row[11] or max_attempts)


def size_of(rows: Sequence[Sequence[Any]]) -> int:
    """Bytes of the payloads and bodies in such rows."""
    return sum(len(row[4] or b"") + len(row[5] or b"") for row in rows)
