"""Claims of whole shards, for ordered sinks: nothing is marked, and whoever holds a shard holds the order of its keys.

The rule that keeps the order: in a shard, messages are read in id order by the one that holds it, and of a key nothing
is sent beyond its first message that is not delivered. Messages behind that one leave the ready index
(run_at = infinity), and the key gets a row in relay.stuck_keys that says up to which id it may be sent. Letting waiting
messages go in id order, and that id with them, is always safe: newer ones that are still ready lie above it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any
from uuid import UUID, uuid4

import psycopg

from relay.claim import Claim, LostClaim, Verdict, message_of, size_of
from relay.database import Database, us_since_1970
from relay.edge import Edge
from relay.order import judge_ordered
from relay.places import Places, lock_rows
from relay.rows import write_undelivered
from relay.scan import Appetite
from relay.settings import SinkSettings
from relay.statements import statement
from relay.stuck import let_keys_go, stick
from relay.verdict import Destinations
from sinks.base import Outcome

NEVER_COMPRESSED = 1800
"""Bytes of a payload that PostgreSQL leaves as it is, with whatever else is in its row."""


class _Moved(Exception):
    """A row is not where it was."""


class ShardClaims:
    """Claims, judges and settles for one worker of one ordered sink. Raises as `RowClaims` does.

    Args:
        edge: shared with the sink's other workers in this process.
    """

    def __init__(self, database: Database, settings: SinkSettings, worker: str, edge: Edge | None = None) -> None:
        self._database = database
        self._settings = settings
        self._worker = worker
        self._edge = edge or Edge(settings.name, settings.shards)
        self._mark = self._edge.mark
        self._connections = 0
        self._appetite = Appetite(settings.batch_messages, settings.batch_bytes)
        self._destinations = Destinations()
        # Enough for several workers to be busy at once; what is missing in one claim comes in the next.
        self._share = max(1, settings.shards // (4 * settings.workers))
        self._want = settings.shards
        self._small = True
        """Whether the last messages were small, and none of them has to be taken alone."""

    def claim(self, limit: int, token: UUID | None = None) -> Claim | None:
        """Claim free shards with up to `limit` ready messages; None where there are none. The token must be fresh."""
        token = token or uuid4()
        limit = min(limit, self._appetite.limit)
        self._edge.move(self._database)
        with self._database.transaction() as conn:
            if self._database.connections != self._connections:
                self._connections = self._database.connections
                self._edge.forget()
            self._mark = self._edge.mark
            shards, claimed_us = self._lock(conn)
            rows = self._read(conn, shards, limit) if shards else []
            claim = self._sorted_out(token, claimed_us, rows) if rows else None
            if claim is not None:
                self._note(conn, claim)
        if claim is None:
            self._want = self._settings.shards
            return None
        self._appetite.took(len(rows), claim.size)
        self._adapt(len(shards), limit, rows)
        return claim

    def abandon(self, token: UUID) -> None:
        """Give back what a claim holds of which nobody heard, if there is one. Nothing is marked, nothing counted."""
        self._database.run(statement("end_claim"), {"token": token})

    def judge(self, claim: Claim, outcomes: Sequence[Outcome]) -> Verdict:
        """What to write back for what the sink said."""
        return judge_ordered(claim, outcomes, self._settings, self._destinations)

    def settle(self, claim: Claim, verdict: Verdict) -> None:
        """End the claim and write its outcomes.

        Raises:
            LostClaim: it was lost, and nothing was written.
        """
        try:
            self._settle(claim, verdict, moved=False)
        except _Moved:
            self._settle(claim, verdict, moved=True)
        if len(verdict.delivered) == len(claim.messages) and not (claim.waiting or claim.exhausted):
            self._edge.passed(self._mark, dict(zip(claim.shard_of, claim.ids, strict=True)))

    def release(self, claim: Claim, *, unknown: bool, reason: str | None) -> None:
        """Give all of a claim back. What was not marked needs no write, unless its outcome is unknown. Raises as
        `settle` does."""
        where = self._where(claim)
        with self._database.transaction() as conn:
            self._end(conn, claim)
            if unknown:
                places = lock_rows(conn, where, claim.ids, claim.shard_of)
                held = {"delay": 0.0, "unknown": True, "reason": reason, "places": places}
                conn.execute(statement("settle_release"), where | held)

    def close(self) -> None:
        self._database.close()

    def _lock(self, conn: psycopg.Connection[Any]) -> tuple[list[int], int]:
        """Lock free shards; return them, and the database's time in microseconds since 1970."""
        # Where all shards are deep, to look into each of them for every claim would be a good part of its cost.
        line = self._edge.next_in_line(self._want) if self._want < self._settings.shards else []
        if line:
            locked, _, now = self._look(conn, line)
            if locked:
                return locked, now
        locked, others, now = self._look(conn, None)
        # Not all of them: shards that are read at the same pace share the pages that they are read from.
        self._edge.line_up(others[: max(0, len(others) - self._want) // 2])
        while others and not locked:
            # Those with the oldest messages are just being claimed.
            locked, others, now = self._look(conn, others)
        return locked, now

    def _look(self, conn: psycopg.Connection[Any], among: list[int] | None) -> tuple[list[int], list[int], int]:
        """Lock free shards among these; return them, those that come next, and the time."""
        params = {
            "sink": self._settings.name,
            "among": among,
            "edges": list(self._mark.after),
            "wanted": self._want,
        }
        found = conn.execute(statement("lock_shards"), params, binary=True).fetchall()
        locked = [shard for shard, _, is_locked in found if is_locked]
        others = [shard for shard, _, _ in found[self._want :]]
        return locked, others, us_since_1970(found[0][1]) if found else 0

    def _read(self, conn: psycopg.Connection[Any], shards: list[int], limit: int) -> list[tuple[Any, ...]]:
        """Read messages of locked shards.

        Who else claims one of them holds its lock until that can be seen, and this statement's snapshot is younger than
        our lock: so what no claim has by now is ours, and what its last owner delivered is gone.
        """
        edges = self._mark.after
        params = {
            "sink": self._settings.name,
            "shards": shards,
            # Resharded since this worker started, there may be more of them.
            "edges": [edges[shard] if shard < len(edges) else 0 for shard in shards],
            "messages": limit,
            "each": -(-limit // len(shards)),
            "bytes": self._settings.batch_bytes,
        }
        if self._small:
            rows = conn.execute(statement("read_small_shards"), params, binary=True).fetchall()
            if all((row[4] is not None or row[5] is not None) and not _suspect(row) for row in rows):
                return sorted(rows, key=_id_of)
        rows = conn.execute(statement("read_shards"), params, binary=True).fetchall()
        # What is longer may be compressed, and then the other statement cannot tell its size.
        part = min(self._settings.batch_bytes // limit, NEVER_COMPRESSED)
        self._small = all(len(row[4] or row[5] or b"") < part and not _suspect(row) for row in rows)
        return sorted(rows, key=_id_of)

    def _sorted_out(self, token: UUID, claimed_us: int, rows: list[tuple[Any, ...]]) -> Claim:
        claim = Claim(
            token=token,
            sink=self._settings.name,
            messages=[],
            places=[],
            max_attempts=[],
            claimed_us=claimed_us,
            size=size_of(rows),
            shards=tuple({row[12] for row in rows}),
        )
        if not any(row[10] or row[13] is not None for row in rows):
            claim.messages.extend(map(message_of, rows))
            claim.places.extend([row[0] for row in rows])
            claim.max_attempts.extend([row[11] for row in rows])
            claim.shard_of.extend([row[12] for row in rows])
            return claim
        done_with: set[str] = set()
        for row in rows:
            message, shard, upto = message_of(row), row[12], row[13]
            if upto is not None:
                claim.stuck[str(message.key)] = upto
            if upto is not None and message.id > upto:
                claim.waiting.append((shard, message))
            elif message.key in done_with:
                # After a message that is dead unsent: what becomes of its key is decided first.
                continue
            elif message.prior_tokens and message.attempts > (row[11] or self._settings.max_attempts):
                claim.exhausted.append((shard, message))
                if message.key is not None:
                    done_with.add(message.key)
            else:
                claim.messages.append(message)
                claim.places.append(row[0])
                claim.max_attempts.append(row[11])
                claim.shard_of.append(shard)
        return claim

    def _note(self, conn: psycopg.Connection[Any], claim: Claim) -> None:
        """Write down what is about to be sent. Locked shards without messages are free again with the commit."""
        ids: dict[int, list[int]] = {shard: [] for shard in claim.shards}
        for shard, message in zip(claim.shard_of, claim.messages, strict=True):
            ids[shard].append(message.id)
        noted = {
            "token": claim.token,
            "sink": claim.sink,
            "worker": self._worker,
            "lease": self._settings.lease,
            "shards": list(ids),
            "counts": [len(of_shard) for of_shard in ids.values()],
            "ids": "{" + ",".join(map(str, chain.from_iterable(ids.values()))) + "}",
        }
        conn.execute(statement("claim_shards"), noted)

    def _adapt(self, shards: int, limit: int, rows: list[tuple[Any, ...]]) -> None:
        """Choose how many shards the next claim takes."""
        read = Counter([row[12] for row in rows])
        deep = sum(count * shards >= limit for count in read.values())
        if not deep:
            self._want = self._settings.shards
        elif len(rows) * 2 > limit:
            self._want = self._share
        else:
            # A few shards hold most of what waits: every other claim takes only so many, and more of each.
            self._want = deep

    def _end(self, conn: psycopg.Connection[Any], claim: Claim) -> None:
        if conn.execute(statement("end_claim"), {"token": claim.token}).rowcount == 0:
            raise LostClaim

    def _settle(self, claim: Claim, verdict: Verdict, *, moved: bool) -> None:
        where = self._where(claim) | {"kept": verdict.unknown}
        shard_of = {message.id: shard for shard, message in claim.exhausted}
        shard_of.update(zip(claim.ids, claim.shard_of, strict=True))

        def lock(ids: list[int]) -> Places:
            return lock_rows(conn, where, ids, [shard_of[id] for id in ids])

        with self._database.transaction() as conn:
            self._end(conn, claim)
            if verdict.delivered:
                ids = [claim.messages[position].id for position in verdict.delivered]
                places = lock(ids) if moved else Places(claim.places[position] for position in verdict.delivered)
                gone = conn.execute(statement("delete_delivered_shards"), {"places": places})
                if not moved and {row[0] for row in gone} != set(ids):
                    raise _Moved
            write_undelivered(conn, where, verdict, self._settings, lock)
            if verdict.stuck or verdict.waiting:
                stick(conn, claim.sink, verdict, self._settings)
            if verdict.progressed:
                let_keys_go(conn, claim.sink, verdict.progressed)

    def _where(self, claim: Claim) -> dict[str, Any]:
        return {
            "token": claim.token,
            "mark": None,
            "uncounted": 1,
            "sink": claim.sink,
        }


def _id_of(row: Sequence[Any]) -> int:
    message_id: int = row[1]
    return message_id


def _suspect(row: Sequence[Any]) -> bool:
    """Whether two claims died with this message."""
    return row[10] is not None and len(row[10]) >= 2
