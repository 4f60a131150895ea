"""Ending a claim, which is the first step of every settle and can be done once only."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg

from relay.claims.claim import LostClaim
from relay.statements import statement


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
