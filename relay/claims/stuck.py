"""Stuck keys: what waits leaves the ready index, and is let go again, a message or some at a time.

Whoever makes messages wait writes the key's row afterwards, in the same transaction; whoever lets them go locks
that row first, and looks for what waits by a later statement. So nothing waits without a row in relay.stuck_keys.
"""

from __future__ import annotations

from typing import Any

import psycopg

from relay.claims.claim import Verdict
from relay.claims.places import Places
from relay.config.settings import SinkSettings
from relay.database.connection import Database
from relay.statements import statement

LET_GO_MESSAGES = 1000
"""At once, of all keys together."""


def stick(conn: psycopg.Connection[Any], sink: str, verdict: Verdict, settings: SinkSettings) -> None:
    """Make messages of stuck keys wait, inside a settle's transaction."""
    first_of = {key.key: key for key in verdict.stuck}
    heads = [key for key in verdict.stuck if not key.blocked]
    waiting = {
        "sink": sink,
        "shards": [key.shard for key in heads] + [shard for shard, _ in verdict.waiting],
        "ids": [key.first for key in heads] + [message.id for _, message in verdict.waiting],
        "counts": [int(key.counted) for key in heads] + [0] * len(verdict.waiting),
        "reasons": [key.reason for key in heads] + [None] * len(verdict.waiting),
        "kept": [verdict.unknown] * len(heads) + [None] * len(verdict.waiting),
    }
    if waiting["ids"]:
        conn.execute(statement("settle/wait_messages"), waiting)
    kept: dict[str, int] = {}
    for _, message in verdict.waiting:
        if message.key is not None and message.key not in first_of:
            kept.setdefault(message.key, message.id)
    keys = {
        "sink": sink,
        "keys": [*first_of, *kept],
        "firsts": [key.first for key in verdict.stuck] + list(kept.values()),
        "blocked": [key.blocked for key in verdict.stuck] + [False] * len(kept),
        "afters": [key.after for key in verdict.stuck] + [0.0] * len(kept),
        "attempts": [key.attempts for key in verdict.stuck] + [0] * len(kept),
        "reasons": [key.reason for key in verdict.stuck] + [None] * len(kept),
        "destinations": [key.destination for key in verdict.stuck] + [None] * len(kept),
        "base": settings.backoff.base,
        "max": settings.backoff.max,
    }
    conn.execute(statement("settle/stick_keys"), keys)


def let_keys_go(conn: psycopg.Connection[Any], sink: str, keys: list[str]) -> None:
    """Let the next waiting messages of stuck keys go, inside a settle's transaction; blocked keys stay."""
    locked = conn.execute(statement("settle/lock_stuck_keys"), {"sink": sink, "keys": keys}).fetchall()
    let_go(conn, locked, max(1, LET_GO_MESSAGES // len(keys)))


def let_due_keys_go(database: Database, keys: int = LET_GO_MESSAGES) -> int:
    """Give up to so many stuck keys whose time has come another try, with one message each; return how many."""
    with database.transaction() as conn:
        locked = conn.execute(statement("settle/lock_due_keys"), {"keys": keys}).fetchall()
        let_go(conn, locked, 1)
    return len(locked)


def let_go(
    conn: psycopg.Connection[Any], locked: list[tuple[Any, ...]], messages: int, destination: str | None = None
) -> None:
    """Let up to so many waiting messages of each locked key (sink, hash, digest) go.

    Args:
        destination: what they are a probe of.
    """
    if locked:
        sinks, hashes, digests = (list(column) for column in zip(*locked, strict=True))
        keys = {"sinks": sinks, "hashes": hashes, "digests": digests, "messages": messages}
        places = Places(row[0] for row in conn.execute(statement("settle/lock_waiting"), keys, binary=True))
        conn.execute(statement("settle/let_go"), keys | {"places": places, "destination": destination})
