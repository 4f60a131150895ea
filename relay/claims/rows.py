"""Claims of single rows, for sinks without order: each row is marked with the claim's token."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
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
from relay.claims.parking import write_destinations
from relay.claims.places import Places, lock_rows
from relay.claims.scan import Appetite, Scan
from relay.claims.unread import read
from relay.claims.verdict import judge
from relay.config.settings import SinkSettings
from relay.database.connection import Database, us_since_1970
from relay.statements import statement
from sinks.base import Outcome


class RowClaims:
    """Claims, judges and settles for one worker of one unordered sink.

    Args:
        scan, destinations: shared with the sink's other workers in this process.

    Raises:
        DatabaseUnavailable: from `claim`, `settle`, `release`: try again later.
        RelayError: from the same: a person has to do something.
    """

    def __init__(
        self,
        database: Database,
        settings: SinkSettings,
        worker: str,
        scan: Scan | None = None,
        destinations: Destinations | None = None,
    ) -> None:
        self._database = database
        self._settings = settings
        self._worker = worker
        self._scan = scan or Scan()
        self._appetite = Appetite(settings.batch_messages, settings.batch_bytes)
        self._destinations = destinations or Destinations()
        self._ending = Ending()

    def claim(self, limit: int, token: UUID | None = None) -> Claim | None:
        """Claim up to `limit` free messages; None where there are none. The token must be fresh."""
        token = token or uuid4()
        look = self._scan.start()
        try:
            rows = self._database.query(
                statement("claims/claim_rows"),
                {
                    "token": token,
                    "sink": self._settings.name,
                    "worker": self._worker,
                    "messages": min(limit, self._appetite.limit),
                    "apart": self._appetite.apart,
                    "bytes": self._settings.batch_bytes,
                    "lease": self._settings.lease,
                    "after": look.after,
                },
            )
        except BaseException:
            self._scan.failed(look)
            self._appetite.failed()
            raise
        # The server answers in the order of the heap, which is mostly but not always that of the ids.
        rows.sort(key=lambda row: row[1])
        size = size_of(rows)
        self._scan.found(look, rows[-1][1] if rows else None)
        self._appetite.took(len(rows), size)
        if not rows:
            return None
        unsent: dict[int, str] = {}
        if any(row[12] for row in rows):
            unsent = {row[1]: EXHAUSTED for row in rows if is_exhausted(row, self._settings.max_attempts)}
        return Claim(
            token=token,
            sink=self._settings.name,
            messages=[message_of(row, unsent) for row in rows],
            places=[row[0] for row in rows],
            max_attempts=[row[11] for row in rows],
            claimed_us=us_since_1970(rows[0][15]),
            size=size,
            unsent=unsent,
            unread=None if rows[0][13] is None else Unread(rows[0][13]),
            probes={row[1]: row[14] for row in rows if row[14] is not None},
        )

    def read(self, claim: Claim, largest: int) -> None:
        """Read the data of a message that was claimed without it. Raises as `unread.read` does."""
        read(self._database, claim, largest)

    def abandon(self, token: UUID) -> None:
        """Give back uncounted what a claim holds of which nobody heard, if there is one."""
        with self._database.transaction() as conn:
            row = conn.execute(statement("settle/lock_claim"), {"token": token}).fetchone()
            if row is None:
                return
            where = {"token": token, "mark": token, "uncounted": 0, "sink": self._settings.name}
            conn.execute(statement("settle/end_claim"), where)
            held = {"places": self._lock(conn, where, row[0]), "delay": 0.0, "unknown": False, "reason": None}
            conn.execute(statement("settle/settle_release"), where | held | {"died": False})
            self._scan.go_back(min(row[0]))

    def judge(self, claim: Claim, outcomes: Sequence[Outcome]) -> Verdict:
        """What to write back for what the sink said."""
        return judge(claim, outcomes, self._settings.max_attempts, self._destinations)

    def settle(self, claim: Claim, verdict: Verdict) -> None:
        """End the claim and write its outcomes.

        Raises:
            LostClaim: it was lost, and nothing was written.
        """
        where = self._where(claim) | {"kept": verdict.unknown}
        with suppress(AlreadyEnded), self._database.transaction() as conn:
            self._ending.end(conn, claim.token)
            if verdict.delivered:
                self._delete(conn, claim, verdict.delivered, where)
            write_undelivered(conn, where, verdict, self._settings, lambda ids: self._lock(conn, where, ids))
        for _, _, ids in verdict.held:
            self._scan.go_back(ids[0])

    def release(self, claim: Claim, *, unknown: bool, reason: str | None, died: bool = False) -> None:
        """Give all of a claim back without counting the attempt. Raises as `settle` does.

        Args:
            unknown: its messages may have been delivered all the same: its token is kept with them.
            died: the sink crashed, and one of its messages may be the cause.
        """
        where = self._where(claim)
        with suppress(AlreadyEnded), self._database.transaction() as conn:
            self._ending.end(conn, claim.token)
            places = self._lock(conn, where, claim.ids)
            held = {"delay": 0.0, "unknown": unknown, "reason": reason, "places": places, "died": died}
            conn.execute(statement("settle/settle_release"), where | held)
        if claim.messages:
            self._scan.go_back(claim.messages[0].id)

    def close(self) -> None:
        self._database.close()

    def _lock(self, conn: psycopg.Connection[Any], where: dict[str, Any], ids: list[int]) -> Places:
        return lock_rows(conn, where, ids, [0] * len(ids))

    def _delete(
        self, conn: psycopg.Connection[Any], claim: Claim, delivered: Sequence[int], where: dict[str, Any]
    ) -> None:
        if len(delivered) == len(claim.messages):
            # Rows may have been moved meanwhile (VACUUM FULL), be it to each other's places: all of them go.
            params = {"token": claim.token, "places": Places(claim.places)}
            if conn.execute(statement("settle/delete_delivered"), params).rowcount == len(delivered):
                return
        ids = [claim.messages[position].id for position in delivered]
        params = {"token": claim.token, "places": self._lock(conn, where, ids)}
        conn.execute(statement("settle/delete_delivered"), params)

    def _where(self, claim: Claim) -> dict[str, Any]:
        return {
            "token": claim.token,
            "mark": claim.token,
            "uncounted": 0,
            "sink": claim.sink,
        }


def write_undelivered(
    conn: psycopg.Connection[Any],
    where: Mapping[str, Any],
    verdict: Verdict,
    settings: SinkSettings,
    lock: Callable[[list[int]], Places],
) -> None:
    """Write back, inside a settle's transaction, what is tried again, dead or held, and what had arrived before.

    Args:
        lock: holds messages, given their ids, where they are.
    """
    if verdict.retry:
        ids, reasons, afters = (list(column) for column in zip(*verdict.retry, strict=True))
        retry = {"ids": ids, "reasons": reasons, "afters": afters, "places": lock(ids)}
        backoff = {"base": settings.backoff.base, "max": settings.backoff.max}
        conn.execute(statement("settle/settle_retry"), {**where, **retry, **backoff})
    if verdict.dead:
        ids, reasons = (list(column) for column in zip(*verdict.dead, strict=True))
        dead = {"ids": ids, "reasons": reasons, "untried": list(verdict.untried), "places": lock(ids)}
        conn.execute(statement("settle/settle_dead"), {**where, **dead})
    if verdict.arrived:
        ids, message_ids = [one.id for one in verdict.arrived], [one.message_id for one in verdict.arrived]
        conn.execute(statement("settle/note_arrived"), {**where, "ids": ids, "message_ids": message_ids})
    for delay, reason, ids in verdict.held:
        held = {"delay": delay, "unknown": False, "died": False, "reason": reason, "places": lock(ids)}
        conn.execute(statement("settle/settle_release"), {**where, **held})
    write_destinations(conn, where, verdict.destinations, lock)
