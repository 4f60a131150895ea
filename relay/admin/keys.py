"""Stuck keys, as a person sees them: which wait, and letting them go on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from relay.admin.values import text_of, time_of
from relay.database.connection import Database
from relay.statements import statement

PAGE_KEYS = 500


class WaitingKey(NamedTuple):
    """A key whose first message is not delivered."""

    sink: str
    key: str
    upto: int
    """Messages with a higher id wait."""
    retry_at: datetime | None
    """When it is tried again; None: when a person says so."""
    reason: str | None
    since: datetime
    waiting: int
    """How many of its messages wait."""


def stuck_keys(database: Database, *, sink: str | None, everything: bool) -> Iterator[WaitingKey]:
    """Keys of a sink, or of all.

    Args:
        everything: also those that wait for their next try, and not for a person.
    """
    after = ("", -(2**63), b"")
    while True:
        params = {
            "after_sink": after[0],
            "after_hash": after[1],
            "after_digest": after[2],
            "sink": sink,
            "everything": everything,
        }
        page = database.query(statement("admin/stuck_keys"), {**params, "keys": PAGE_KEYS})
        for name, key, _, _, upto, retry_at, reason, since, waiting in page:
            retry = None if retry_at is None else time_of(retry_at)
            yield WaitingKey(name, text_of(key, database.encoding) or "", upto, retry, reason, time_of(since), waiting)
        if len(page) < PAGE_KEYS:
            return
        after = (page[-1][0], page[-1][2], page[-1][3])


def release(database: Database, *, sink: str | None, keys: Sequence[str] | None) -> list[str]:
    """Let keys go on now, and return those that were stuck.

    Args:
        sink: None: of any sink.
        keys: None: all that wait for a person.
    """
    params = {"sink": sink, "keys": None if keys is None else list(keys)}
    return [row[0] for row in database.query(statement("admin/release_keys"), params)]
