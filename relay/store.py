"""Every statement that the relay sends while it runs, as methods. Each is its own short transaction."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import psycopg
from psycopg import pq
from psycopg.adapt import Buffer, Dumper
from psycopg.types.json import Jsonb

from relay.database import Database, us_since_1970
from relay.statements import statement
from sinks.base import Message

NO_HEADERS: Mapping[str, Any] = {}
ROW_SHARDS = [0]


@dataclass(frozen=True, slots=True)
class Claim:
    """Messages under one lease of ours, in id order."""

    token: UUID
    sink: str
    messages: list[Message]
    places: list[bytes]
    """Where each row is (ctid), in the order of `messages`."""
    max_attempts: list[int | None]
    claimed_us: int
    size: int
    """Bytes of all payloads and bodies."""
    shards: Sequence[int] = (0,)


@dataclass(slots=True)
class Verdict:
    """What a settle writes back, by what becomes of the messages."""

    delivered: list[int]
    """Positions in the claim."""
    retry: list[tuple[int, str, float]]
    """Message id, reason, at least so many seconds from now."""
    dead: list[tuple[int, str]]
    """Message id, reason."""
    held: list[tuple[float, str, list[int]]]
    """Seconds to wait, reason, message ids; the attempt does not count."""


class _Places(list[bytes]):
    """Row places as they came, for `ctid = any(…)`."""


class _PlacesDumper(Dumper):
    format = pq.Format.BINARY
    oid = 1010  # tid[]

    def dump(self, obj: Any) -> Buffer:
        head = struct.pack("!iiIii", 1, 0, 27, len(obj), 1)
        return head + b"".join([b"\x00\x00\x00\x06" + place for place in obj])


class Store:
    """The relay's statements over one connection.

    Raises:
        DatabaseUnavailable: from every method: try again later.
        RelayError: from every method: a person has to do something.
    """

    def __init__(self, database: Database) -> None:
        self.database = database

    def claim_rows(self, sink: str, worker: str, *, messages: int, size: int, lease: float, after: int) -> Claim | None:
        """Claim up to `messages` free messages and `size` bytes, of ids above `after`; None where there are none."""
        token = uuid4()
        rows = self.database.query(
            statement("claim_rows"),
            {
                "token": token,
                "sink": sink,
                "worker": worker,
                "messages": messages,
                "bytes": size,
                "lease": lease,
                "after": after,
            },
        )
        return _claim(token, sink, rows) if rows else None

    def settle(self, claim: Claim, verdict: Verdict, *, backoff: tuple[float, float]) -> bool:
        """End the claim and write its outcomes; False where the claim was lost, and nothing was written.

        Args:
            backoff: base and longest delay of a retry, in seconds.
        """
        where = {"token": claim.token, "sink": claim.sink, "shards": list(claim.shards)}
        with self.database.transaction() as conn:
            if conn.execute(statement("end_claim"), where).rowcount == 0:
                return False
            if verdict.delivered:
                _delete_delivered(conn, claim, verdict.delivered, where)
            if verdict.retry:
                ids, reasons, afters = (list(column) for column in zip(*verdict.retry, strict=True))
                base, longest = backoff
                more = {"ids": ids, "reasons": reasons, "afters": afters, "base": base, "max": longest}
                conn.execute(statement("settle_retry"), where | more)
            if verdict.dead:
                ids, reasons = (list(column) for column in zip(*verdict.dead, strict=True))
                conn.execute(statement("settle_dead"), where | {"ids": ids, "reasons": reasons})
            for delay, reason, held in verdict.held:
                conn.execute(
                    statement("settle_release"),
                    where | {"ids": held, "delay": delay, "unknown": False, "reason": reason},
                )
        return True

    def release(self, claim: Claim, *, unknown: bool, reason: str | None) -> bool:
        """Give all of a claim back without counting the attempt; False where it was lost."""
        ids = [message.id for message in claim.messages]
        where = {"token": claim.token, "sink": claim.sink, "shards": list(claim.shards), "ids": ids}
        with self.database.transaction() as conn:
            if conn.execute(statement("end_claim"), where).rowcount == 0:
                return False
            conn.execute(statement("settle_release"), where | {"delay": 0.0, "unknown": unknown, "reason": reason})
        return True

    def extend_claims(self, tokens: Sequence[UUID], lease: float) -> set[UUID]:
        """Renew leases; return the tokens that are still ours."""
        rows = self.database.query(statement("extend_claims"), {"tokens": list(tokens), "lease": lease})
        return {row[0] for row in rows}

    def reap(self) -> tuple[str, str, int] | None:
        """Free the messages of one expired claim; return its sink, its worker and how many, or None."""
        with self.database.transaction() as conn:
            row = conn.execute(statement("lock_expired_claim"), binary=True).fetchone()
            if row is None:
                return None
            token, sink, shard, worker, ids = row
            where = {"token": token, "sink": sink, "shards": ROW_SHARDS, "ids": ids}
            if shard is None:
                conn.execute(statement("reap_dead"), where)
                conn.execute(statement("reap_rows"), where)
            conn.execute(statement("end_claim"), where)
        return sink, worker, len(ids)

    def promote(self, messages: int) -> int:
        """Make up to so many scheduled messages ready whose time has come; return how many."""
        return self.database.run(statement("promote"), {"messages": messages})

    def next_due(self) -> float | None:
        """Seconds until the next scheduled message is due; None where there is none."""
        seconds: float | None = self.database.query(statement("next_due"))[0][0]
        return seconds

    def say_alive(self, worker: str, *, idle_for: float | None, circuits: Mapping[str, str]) -> None:
        """Show this relay to `status` and, while it is idle, to writers."""
        self.database.run(
            statement("say_alive"), {"worker": worker, "idle_for": idle_for, "circuits": Jsonb(dict(circuits))}
        )

    def say_goodbye(self, worker: str) -> None:
        self.database.run(statement("say_goodbye"), {"worker": worker})

    def is_drained(self, sinks: Sequence[str]) -> bool:
        """True where nothing of these sinks is due or claimed."""
        return bool(self.database.query(statement("is_drained"), {"sinks": list(sinks)})[0][0])

    def known_sinks(self) -> dict[str, tuple[int, int]]:
        """Shards and maximum of attempts of every applied sink."""
        return {row[0]: (row[1], row[2]) for row in self.database.query(statement("known_sinks"))}


def _claim(token: UUID, sink: str, rows: list[tuple[Any, ...]]) -> Claim:
    # The server answers in the order of the heap, which is mostly but not always that of the ids.
    rows.sort(key=lambda row: row[1])
    messages = [
        Message(
            row[1],
            row[2],
            row[3],
            row[4],
            row[5],
            row[6] or NO_HEADERS,
            row[7],
            row[8],
            us_since_1970(row[9]),
            tuple(row[10] or ()),
        )
        for row in rows
    ]
    return Claim(
        token=token,
        sink=sink,
        messages=messages,
        places=[row[0] for row in rows],
        max_attempts=[row[11] for row in rows],
        claimed_us=us_since_1970(rows[0][12]),
        size=sum(len(row[4] or b"") + len(row[5] or b"") for row in rows),
    )


def _delete_delivered(conn: psycopg.Connection[Any], claim: Claim, delivered: list[int], where: dict[str, Any]) -> None:
    places = _Places(claim.places[position] for position in delivered)
    gone = conn.execute(statement("delete_delivered"), {"token": claim.token, "places": places}).rowcount
    if gone < len(delivered):
        ids = [claim.messages[position].id for position in delivered]
        conn.execute(statement("delete_delivered_by_id"), where | {"ids": ids})


psycopg.adapters.register_dumper(_Places, _PlacesDumper)
