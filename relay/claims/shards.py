"""Claims of whole shards, for ordered sinks: nothing is marked, and whoever holds a shard holds the order of its keys.

The rule that keeps the order: in a shard, messages are read in id order by the one that holds it, and of a key nothing
is sent beyond its first message that is not delivered. Messages behind that one leave the ready index
(run_at = infinity), and the key gets a row in relay.stuck_keys that says up to which id it may be sent. Letting waiting
messages go in id order, and that id with them, is always safe: newer ones that are still ready lie above it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any
from uuid import UUID, uuid4

import psycopg

from relay.claims.claim import (
    EXHAUSTED,
    AlreadyEnded,
    Claim,
    Ending,
    Unread,
    Verdict,
    is_exhausted,
    message_of,
    size_of,
)
from relay.claims.destinations import Destinations
from relay.claims.edge import Edge
from relay.claims.order import judge_ordered
from relay.claims.places import Ids, Places, bits_of, lock_rows
from relay.claims.reading import Read, Reader
from relay.claims.rows import write_undelivered
from relay.claims.scan import Appetite
from relay.claims.stuck import let_keys_go, stick
from relay.claims.unread import read
from relay.config.settings import SinkSettings
from relay.database.connection import Database
from relay.statements import statement
from sinks.base import Message, Outcome


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
        self._ending = Ending()

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
                read = self._reader.read(conn, limit, apart=self._appetite.apart)
                if not read.rows:
                    self._appetite.took(0, 0)
                    return None
                claim = self._sorted_out(token, read)
                self._note(conn, claim)
        except BaseException:
            self._appetite.failed()
            raise
        finally:
            self._reader.done()
        self._appetite.took(len(read.rows), claim.size)
        return claim

    def read(self, claim: Claim, largest: int) -> None:
        """Read the data of a message that was claimed without it. Raises as `unread.read` does."""
        read(self._database, claim, largest)
        upto = claim.unread.upto if claim.unread else None
        if not claim.messages or upto is None:
            return
        message, shard = claim.messages[0], claim.shard_of[0]
        claim.stuck[str(message.key)] = upto
        if message.id > upto and message.key is not None:
            claim.messages.clear()
            claim.unsent.clear()
            claim.waiting.append((shard, message))

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
            if len(verdict.delivered) == len(claim.messages) and not (claim.waiting or claim.unsent):
                self._edge.passed(self._reader.mark, dict(zip(claim.shard_of, claim.ids, strict=True)))
            self._edge.line.join(self._reader.more)
        finally:
            self._edge.line.done(claim.shards)

    def release(self, claim: Claim, *, unknown: bool, reason: str | None, died: bool = False) -> None:
        """Give all of a claim back. What was not marked needs no write, unless its outcome is unknown. As
        `RowClaims.release` otherwise."""
        where = self._where(claim)
        with suppress(AlreadyEnded), self._database.transaction() as conn:
            self._ending.end(conn, claim.token)
            if unknown or died:
                places = lock_rows(conn, where, claim.ids, claim.shard_of)
                held = {"delay": 0.0, "unknown": unknown, "died": died, "reason": reason, "places": places}
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
        size = rows[0][13]
        if size is not None:
            claim = replace(claim, unread=Unread(size, rows[0][15]))
        messages = [message_of(row, claim.unsent) for row in rows]
        claim.probes.update((row[1], row[16]) for row in rows if row[16] is not None)
        if any(row[12] for row in rows):
            claim.unsent.update((row[1], EXHAUSTED) for row in rows if is_exhausted(row, self._settings.max_attempts))
        plain = size is not None or not (claim.unsent or any(row[15] is not None for row in rows))
        taken = list(range(len(rows)) if plain else self._taken(claim, rows, messages, shard_of))
        claim.messages.extend([messages[at] for at in taken])
        claim.places.extend([rows[at][0] for at in taken])
        claim.max_attempts.extend([rows[at][11] for at in taken])
        claim.shard_of.extend([shard_of[rows[at][1]] for at in taken])
        return claim

    def _taken(
        self, claim: Claim, rows: Sequence[Any], messages: Sequence[Message], shard_of: Mapping[int, int]
    ) -> Iterator[int]:
        """Positions of the messages that a settle decides; those that must wait are noted, those that may go next are
        left out."""
        done_with: set[str | None] = set()
        for at, (row, message) in enumerate(zip(rows, messages, strict=True)):
            upto = row[15]
            if upto is not None:
                claim.stuck[str(message.key)] = upto
            if upto is not None and message.id > upto:
                claim.waiting.append((shard_of[message.id], message))
                claim.unsent.pop(message.id, None)
            elif message.key in done_with:
                # After a message that is given up unsent: what becomes of its key is decided first.
                claim.unsent.pop(message.id, None)
            else:
                yield at
                if message.key is not None and message.id in claim.unsent:
                    done_with.add(message.key)

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

    def _settle(self, claim: Claim, verdict: Verdict, *, moved: bool) -> None:
        where = self._where(claim) | {"kept": verdict.unknown}
        shard_of = dict(zip(claim.ids, claim.shard_of, strict=True))

        def lock(ids: list[int]) -> Places:
            return lock_rows(conn, where, ids, [shard_of[id] for id in ids])

        with suppress(AlreadyEnded), self._database.transaction() as conn:
            self._ending.end(conn, claim.token)
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
