"""Claims of whole shards, for ordered sinks: nothing is marked, and whoever holds a shard holds the order of its keys.

The rule that keeps the order: in a shard, messages are read in id order by the one that holds it, and of a key nothing
is sent beyond its first message that is not delivered. Messages behind that one leave the ready index
(run_at = infinity), and the key gets a row in relay.stuck_keys that says up to which id it may be sent. Letting waiting
messages go in id order, and that id with them, is always safe: newer ones that are still ready lie above it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import psycopg

from relay.claim import Claim, LostClaim, Places, Verdict, message_of, size_of
from relay.database import Database, us_since_1970
from relay.order import judge_ordered
from relay.rows import dead_params, retry_params
from relay.scan import Scan
from relay.settings import SinkSettings
from relay.statements import statement
from relay.verdict import Destinations
from sinks.base import Message, Outcome

LET_GO_MESSAGES = 1000


class _Moved(Exception):
    """A row is not where it was."""


class ShardClaims:
    """Claims, judges and settles for one worker of one ordered sink. Raises as `RowClaims` does."""

    def __init__(self, database: Database, settings: SinkSettings, worker: str) -> None:
        self._database = database
        self._settings = settings
        self._worker = worker
        self._scan = Scan(settings.batch_messages, settings.batch_bytes, settings.shards)
        self._destinations = Destinations()
        # Enough for several workers to be busy at once; what is missing in one claim comes in the next.
        self._share = max(1, settings.shards // (4 * settings.workers))
        self._want = settings.shards

    def claim(self, limit: int) -> Claim | None:
        """Claim free shards with up to `limit` ready messages; None where there are none."""
        token = uuid4()
        afters = self._scan.start()
        limit = min(limit, self._scan.limit)
        with self._database.transaction() as conn:
            shards = self._take(conn, token, afters)
            rows = self._read(conn, token, shards, afters, limit) if shards else []
            rows.sort(key=lambda row: row[1])
            used: dict[int, list[int]] = {}
            for row in rows:
                used.setdefault(row[13], []).append(row[1])
            if used:
                lists = ["{" + ",".join(map(str, ids)) + "}" for ids in used.values()]
                conn.execute(statement("note_ids"), {"token": token, "used": list(used), "lists": lists})
            if len(used) < len(shards):
                conn.execute(statement("drop_unused_claims"), {"token": token})
            uptos = self._stuck(conn, rows, list(used)) if rows and rows[0][14] else {}
        size = size_of(rows)
        self._scan.found({shard: ids[-1] for shard, ids in used.items()}, len(rows), size)
        busy = any(len(ids) * len(shards) >= limit for ids in used.values())
        self._want = self._share if busy else self._settings.shards
        if not rows:
            return None
        return self._sorted_out(token, rows, tuple(used), uptos, size)

    def judge(self, claim: Claim, outcomes: Sequence[Outcome]) -> Verdict:
        """What to write back for what the sink said."""
        return judge_ordered(claim, outcomes, self._settings, self._destinations)

    def settle(self, claim: Claim, verdict: Verdict) -> None:
        """End the claim and write its outcomes.

        Raises:
            LostClaim: it was lost, and nothing was written.
        """
        where = self._where(claim)
        with self._database.transaction() as conn:
            if conn.execute(statement("end_claim"), where).rowcount != len(claim.shards):
                # One of its shards may belong to somebody else; what is left of the claim runs out by itself.
                raise LostClaim
            if verdict.delivered:
                self._delete(conn, claim, verdict.delivered, where)
            if verdict.retry:
                conn.execute(statement("settle_retry"), where | retry_params(verdict, self._settings))
            if verdict.dead:
                conn.execute(statement("settle_dead"), where | dead_params(verdict))
            for delay, reason, ids in verdict.held:
                held = {"ids": ids, "delay": delay, "unknown": False, "reason": reason}
                conn.execute(statement("settle_release"), where | held)
            self._stick(conn, verdict, where)
            for shard, key in verdict.progressed:
                first = let_go(conn, claim.sink, shard, key, LET_GO_MESSAGES)
                if first is not None:
                    self._scan.go_back(shard, first)
            if len(verdict.delivered) < len(claim.messages):
                self._go_back(claim)

    def release(self, claim: Claim, *, unknown: bool, reason: str | None) -> None:
        """Give all of a claim back. What was not marked needs no write, unless its outcome is unknown. Raises as
        `settle` does."""
        where = self._where(claim)
        with self._database.transaction() as conn:
            if conn.execute(statement("end_claim"), where).rowcount != len(claim.shards):
                raise LostClaim
            if unknown:
                held = {"ids": claim.ids, "delay": 0.0, "unknown": True, "reason": reason}
                conn.execute(statement("settle_release"), where | held)
            self._go_back(claim)

    def close(self) -> None:
        self._database.close()

    def _take(self, conn: psycopg.Connection[Any], token: UUID, afters: list[int]) -> list[int]:
        params = {
            "token": token,
            "sink": self._settings.name,
            "worker": self._worker,
            "lease": self._settings.lease,
            "afters": afters,
            "shards": self._want,
        }
        return [row[0] for row in conn.execute(statement("claim_shards"), params)]

    def _read(
        self, conn: psycopg.Connection[Any], token: UUID, shards: list[int], afters: list[int], limit: int
    ) -> list[tuple[Any, ...]]:
        params = {
            "token": token,
            "sink": self._settings.name,
            "shards": shards,
            "afters": [afters[shard] for shard in shards],
            "messages": limit,
            "each": -(-limit // len(shards)),
            "bytes": self._settings.batch_bytes,
        }
        return conn.execute(statement("read_shards"), params, binary=True).fetchall()

    def _stuck(self, conn: psycopg.Connection[Any], rows: list[tuple[Any, ...]], used: list[int]) -> dict[str, int]:
        keys = list({row[3] for row in rows if row[3] is not None})
        params = {"sink": self._settings.name, "shards": used, "keys": keys}
        return dict(conn.execute(statement("stuck_among"), params).fetchall())

    def _sorted_out(
        self, token: UUID, rows: list[tuple[Any, ...]], shards: tuple[int, ...], uptos: dict[str, int], size: int
    ) -> Claim:
        claim = Claim(
            token=token,
            sink=self._settings.name,
            messages=[],
            places=[],
            max_attempts=[],
            claimed_us=us_since_1970(rows[0][12]),
            size=size,
            shards=shards,
            stuck=frozenset(uptos),
        )
        done_with: set[str] = set()
        for row in rows:
            message, shard = message_of(row), row[13]
            if message.key in uptos and message.id > uptos[message.key]:
                claim.waiting.append((shard, message))
            elif message.key in done_with:
                # After a message that is dead unsent: what becomes of its key is decided first.
                continue
            elif message.attempts > (row[11] or self._settings.max_attempts):
                claim.exhausted.append((shard, message))
                if message.key is not None:
                    done_with.add(message.key)
            else:
                claim.messages.append(message)
                claim.places.append(row[0])
                claim.max_attempts.append(row[11])
                claim.shard_of.append(shard)
        return claim

    def _delete(self, conn: psycopg.Connection[Any], claim: Claim, delivered: list[int], where: dict[str, Any]) -> None:
        expected = {claim.messages[position].id for position in delivered}
        places = Places(claim.places[position] for position in delivered)
        try:
            with conn.transaction():
                gone = {row[0] for row in conn.execute(statement("delete_delivered_shards"), {"places": places})}
                if gone != expected:
                    raise _Moved
        except _Moved:
            conn.execute(statement("delete_delivered_by_id"), where | {"ids": list(expected)})

    def _stick(self, conn: psycopg.Connection[Any], verdict: Verdict, where: dict[str, Any]) -> None:
        keys = verdict.stuck
        for counted in (True, False):
            heads = [key for key in keys if key.counted is counted and not key.blocked]
            if heads:
                params = {"ids": [k.first for k in heads], "reasons": [k.reason for k in heads], "count": int(counted)}
                conn.execute(statement("wait_messages"), where | params)
        if verdict.waiting:
            ids = [message.id for _, message in verdict.waiting]
            conn.execute(statement("wait_messages"), where | {"ids": ids, "reasons": [], "count": 0})
        if keys:
            params = {
                "key_shards": [key.shard for key in keys],
                "keys": [key.key for key in keys],
                "firsts": [key.first for key in keys],
                "blocked": [key.blocked for key in keys],
                "afters": [key.after for key in keys],
                "attempts": [key.attempts for key in keys],
                "reasons": [key.reason for key in keys],
                "base": self._settings.backoff.base,
                "max": self._settings.backoff.max,
            }
            conn.execute(statement("stick_keys"), where | params)
        firsts = _first_of_each_key(verdict.waiting, besides={key.key for key in keys})
        if firsts:
            params = {
                "key_shards": [shard for shard, _ in firsts],
                "keys": [message.key for _, message in firsts],
                "firsts": [message.id for _, message in firsts],
            }
            conn.execute(statement("keep_keys_stuck"), where | params)

    def _go_back(self, claim: Claim) -> None:
        for shard, message in zip(claim.shard_of, claim.messages, strict=True):
            self._scan.go_back(shard, message.id)

    def _where(self, claim: Claim) -> dict[str, Any]:
        return {
            "token": claim.token,
            "mark": None,
            "uncounted": 1,
            "sink": claim.sink,
            "shards": list(claim.shards),
        }


def let_go(conn: psycopg.Connection[Any], sink: str, shard: int, key: str, messages: int) -> int | None:
    """Let the next waiting messages of a key go, inside a transaction; the first one's id, None where none waits."""
    where = {"sink": sink, "shard": shard, "key": key, "messages": messages}
    if conn.execute(statement("lock_stuck_key"), where).fetchone() is None:
        return None
    row = conn.execute(statement("let_go"), where).fetchone()
    return row[0] if row else None


def let_due_key_go(database: Database) -> bool:
    """Give one stuck key whose time has come another try; False where there is none."""
    with database.transaction() as conn:
        row = conn.execute(statement("lock_due_key")).fetchone()
        if row is None:
            return False
        sink, shard, key = row
        let_go(conn, sink, shard, key, 1)
    return True


def _first_of_each_key(waiting: list[tuple[int, Message]], besides: set[str]) -> list[tuple[int, Message]]:
    firsts: dict[str, tuple[int, Message]] = {}
    for shard, message in waiting:
        if message.key is not None and message.key not in besides:
            firsts.setdefault(message.key, (shard, message))
    return list(firsts.values())
