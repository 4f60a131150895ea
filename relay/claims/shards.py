"""Claims of whole shards, for ordered sinks: nothing is marked, and whoever holds a shard holds the order of its keys.

The rule that keeps the order: in a shard, messages are read in id order by the one that holds it, and of a key nothing
is sent beyond its first message that is not delivered. Messages behind that one leave the ready index
(run_at = infinity), and the key gets a row in relay.stuck_keys that says up to which id it may be sent. Letting waiting
messages go in id order, and that id with them, is always safe: newer ones that are still ready lie above it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any
from uuid import UUID, uuid4

import psycopg

from relay.claims.claim import Claim, LostClaim, Verdict, message_of, size_of
from relay.claims.destinations import Destinations
from relay.claims.edge import Edge
from relay.claims.order import judge_ordered
from relay.claims.places import Ids, Places, bits_of, lock_rows
from relay.claims.reading import Read, Reader
from relay.claims.rows import write_undelivered
from relay.claims.scan import Appetite
from relay.claims.stuck import let_keys_go, stick
from relay.config.settings import SinkSettings
from relay.database.connection import Database
from relay.statements import statement
from sinks.base import Outcome


class _Moved(Exception):
    """A row is not where it was."""


class ShardClaims:
    """Claims, judges and settles for one worker of one ordered sink. Raises as `RowClaims` does.

    Args:
        edge, destinations: shared with the sink's other workers in this process.
    """

    def __init__(
        self,
        database: Database,
        settings: SinkSettings,
        worker: str,
        edge: Edge | None = None,
        destinations: Destinations | None = None,
    ) -> None:
        self._database = database
        self._settings = settings
        self._worker = worker
        self._edge = edge or Edge(settings.name, settings.shards)
        self._reader = Reader(settings, self._edge)
        self._connections = 0
        self._appetite = Appetite(settings.batch_messages, settings.batch_bytes)
        self._destinations = destinations or Destinations()

    def claim(self, limit: int, token: UUID | None = None) -> Claim | None:
        """Claim free shards with up to `limit` ready messages; None where there are none. The token must be fresh."""
        token = token or uuid4()
        limit = min(limit, self._appetite.limit)
        self._edge.move(self._database)
        try:
            with self._database.transaction() as conn:
                if self._database.connections != self._connections:
                    self._connections = self._database.connections
                    self._edge.forget()
                read = self._reader.read(conn, limit)
                if not read.rows:
                    return None
                claim = self._sorted_out(token, read)
                self._note(conn, claim)
        finally:
            self._reader.done()
        self._appetite.took(len(read.rows), claim.size)
        return claim

    def abandon(self, token: UUID) -> None:
        """Give back what a claim holds of which nobody heard, if there is one. Nothing is marked, nothing counted."""
        self._database.run(statement("settle/end_claim"), {"token": token})

    def judge(self, claim: Claim, outcomes: Sequence[Outcome]) -> Verdict:
        """What to write back for what the sink said."""
        return judge_ordered(claim, outcomes, self._settings, self._destinations)

    def settle(self, claim: Claim, verdict: Verdict) -> None:
        """End the claim and write its outcomes.

        Raises:
            LostClaim: it was lost, and nothing was written.
        """
        self._edge.line.busy(claim.shards)
        try:
            try:
                self._settle(claim, verdict, moved=False)
            except _Moved:
                self._settle(claim, verdict, moved=True)
            if len(verdict.delivered) == len(claim.messages) and not (claim.waiting or claim.exhausted):
                self._edge.passed(self._reader.mark, dict(zip(claim.shard_of, claim.ids, strict=True)))
            self._edge.line.join(self._reader.more)
        finally:
            self._edge.line.done(claim.shards)

    def release(self, claim: Claim, *, unknown: bool, reason: str | None) -> None:
        """Give all of a claim back. What was not marked needs no write, unless its outcome is unknown. Raises as
        `settle` does."""
        where = self._where(claim)
        with self._database.transaction() as conn:
            self._end(conn, claim)
            if unknown:
                places = lock_rows(conn, where, claim.ids, claim.shard_of)
                held = {"delay": 0.0, "unknown": True, "reason": reason, "places": places}
                conn.execute(statement("settle/settle_release"), where | held)

    def close(self) -> None:
        self._database.close()

    def _sorted_out(self, token: UUID, read: Read) -> Claim:
        rows, shard_of = read
        claim = Claim(
            token=token,
            sink=self._settings.name,
            messages=[],
            places=[],
            max_attempts=[],
            claimed_us=self._reader.claimed_us,
            size=size_of(rows),
            shards=tuple({shard_of[row[1]] for row in rows}),
        )
        if not any(row[10] or row[13] is not None or row[14] is not None for row in rows):
            claim.messages.extend(map(message_of, rows))
            claim.places.extend([row[0] for row in rows])
            claim.max_attempts.extend([row[11] for row in rows])
            claim.shard_of.extend([shard_of[row[1]] for row in rows])
            return claim
        done_with: set[str] = set()
        for row in rows:
            message, shard, upto = message_of(row), shard_of[row[1]], row[13]
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
                if row[14] is not None:
                    claim.probes[message.id] = row[14]
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
            "ids": Ids(chain.from_iterable(ids.values())),
        }
        conn.execute(statement("claims/claim_shards"), noted)

    def _end(self, conn: psycopg.Connection[Any], claim: Claim) -> None:
        if conn.execute(statement("settle/end_claim"), {"token": claim.token}).rowcount == 0:
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
                bits = None if moved else bits_of(ids)
                there = lock(ids) if bits is None else Places(claim.places[position] for position in verdict.delivered)
                params = {"places": there, "bits": bits, "lowest": min(ids), "highest": max(ids)}
                gone = conn.execute(statement("settle/delete_delivered_shards"), params).rowcount
                if bits is not None and gone != len(ids):
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
