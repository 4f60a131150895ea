"""Reading a message that was claimed alone and without its data, because it is large or because claims died with it.

The claim stands while it is read. So whatever reading does to this process, the claim's death counts, and a message
that can never be read runs out of attempts.
"""

from __future__ import annotations

from typing import Any, Final, LiteralString

from relay.claims.claim import Claim, message_of
from relay.database.connection import EPOCH_2000_US, Database
from relay.errors import DatabaseTooSlow, DatabaseUnavailable, RelayError
from relay.statements import statement

LONGEST_KEY: Final = 16 * 2**20
"""Bytes."""


def read(database: Database, claim: Claim, largest: int) -> None:
    """Complete the claim's only message, or give it up; where somebody has removed it, the claim is empty.

    Args:
        largest: bytes that may be read; a larger message is given up unread.

    Raises:
        DatabaseTooSlow: it took too long or more memory than there is, which may be the message's fault.
        DatabaseUnavailable: it was interrupted.
    """
    message = claim.messages[0]
    where = {"sink": claim.sink, "shard": claim.shards[0], "id": message.id}
    try:
        kind, key = _head(database, claim, where)
        claim.messages[0] = message = message._replace(kind=kind, key=key)
        if message.id in claim.unsent:
            return
        (size,) = _one(database, statement("claims/read_size"), where)
        if size > largest:
            claim.unsent[message.id] = f"too large: {size} bytes, and at most {largest} are read for this sink"
            return
        payload, body, headers, key = _one(database, statement("claims/read_message"), where)
    except DatabaseUnavailable:
        raise
    except _Gone:
        claim.messages.clear()
        claim.places.clear()
        claim.max_attempts.clear()
        claim.shard_of.clear()
        return
    except RelayError as error:
        if getattr(error.__cause__, "sqlstate", None) is None:
            # Not the server's words: this side has no memory for it now.
            raise DatabaseTooSlow(str(error)) from error
        claim.unsent[message.id] = f"it cannot be read from the database: {error}"
        return
    row = [None, message.id, kind, key, payload, body, headers, message.message_id, message.attempts]
    row += [message.created_us - EPOCH_2000_US, message.prior_tokens]
    claim.messages[0] = message_of(row, claim.unsent)


def _head(database: Database, claim: Claim, where: dict[str, Any]) -> tuple[str, str | None]:
    """The kind and the key. Whatever becomes of the message, its key has to be known: others may wait for it."""
    try:
        kind, size, key = _one(database, statement("claims/read_head"), {**where, "longest": LONGEST_KEY})
    except DatabaseTooSlow as error:
        # So little never takes long: it is the database's fault.
        raise DatabaseUnavailable(str(error)) from error
    if size > LONGEST_KEY:
        # Nobody overtakes it: all messages of this key end here.
        claim.unsent[claim.messages[0].id] = f"its key is too long: {size} bytes, and at most {LONGEST_KEY} are read"
    return kind, key


class _Gone(Exception):
    """Its row is not there any more."""


def _one(database: Database, sql: LiteralString, where: dict[str, Any]) -> tuple[Any, ...]:
    rows = database.query(sql, where)
    if not rows:
        raise _Gone
    return rows[0]
