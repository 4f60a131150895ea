"""Which shards a claim takes, and what it reads of them.

While little waits, a claim takes all free shards that have something. Where all of them hold more than it can read, it
takes a share of them, and finds it in a line of shards that are known to hold more, as looking into each shard for
every claim would be a good part of its cost. Nothing here is owned by anybody before the claim is written down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import psycopg

from relay.claims.edge import Edge
from relay.config.settings import SinkSettings
from relay.database.connection import us_since_1970
from relay.statements import statement

NEVER_COMPRESSED = 1800
"""Bytes of a payload that PostgreSQL leaves as it is, with whatever else is in its row."""

LOOK_EVERY = 4
"""Where the line has shards enough, one claim of each worker in so many looks for others all the same."""


class Read(NamedTuple):
    """What was read of some shards."""

    rows: list[tuple[Any, ...]]
    """In id order, as `message_of` takes them; the last field is the id up to which a stuck key may be sent."""
    shard_of: dict[int, int]
    """The shard of each message."""

    @classmethod
    def told_each(cls, found: Iterable[tuple[Any, ...]]) -> Read:
        """From rows that name their shard."""
        rows = sorted(found, key=_id_of)
        return cls(rows, {row[1]: row[14] for row in rows})

    @classmethod
    def told_once(cls, found: Iterable[tuple[Any, ...]]) -> Read:
        """From rows of which one without an id names the shard of those that follow, in the order of the statement."""
        rows, shard_of, shard = [], {}, 0
        for row in found:
            if row[1] is None:
                shard = row[14]
            else:
                rows.append(row)
                shard_of[row[1]] = shard
        return cls(sorted(rows, key=_id_of), shard_of)


NOTHING = Read([], {})


class Reader:
    """Locks free shards and reads their messages, for one worker."""

    def __init__(self, settings: SinkSettings, edge: Edge) -> None:
        self._settings = settings
        self._edge = edge
        self.mark = edge.mark
        """Where the last claim started to read."""
        self.claimed_us = 0
        """When the last claim locked its shards: the database's time in microseconds since 1970."""
        self.more: list[tuple[int, int]] = []
        """Shards of which the last claim left something, and an id in each that this is at or above."""
        self._taken: list[int] = []
        """From the line, for the claim that is being made."""
        self._share = share(settings.shards, settings.workers)
        self._want = settings.shards
        self._look_every = LOOK_EVERY * settings.workers
        self._small = True
        """Whether the last messages were small, and none of them has to be taken alone."""

    def read(self, conn: psycopg.Connection[Any], limit: int, *, apart: bool = False) -> Read:
        """Lock free shards until the transaction ends, and read at most so many of their messages.

        Args:
            apart: read one, and that without its data.

        Whatever comes of it, `done` has to be called when the transaction is over.
        """
        self.mark = self._edge.mark
        line, want = self._edge.line, min(self._want, limit)
        looked = self._want == self._settings.shards or line.is_time_to_look(self._look_every)
        if looked:
            line.join(self._find(conn))
        some = line.take(want)
        if some and (read := self._read_of(conn, some, limit, apart)).rows:
            return read
        if looked and not some:
            return NOTHING
        # Others were quicker, or what the line says is out of date.
        line.clear()
        line.join(self._find(conn))
        while some := line.take(want):
            if (read := self._read_of(conn, some, limit, apart)).rows:
                return read
        return NOTHING

    def done(self) -> None:
        """The claim is written down, or nothing came of it."""
        self._edge.line.done(self._taken)
        self._taken = []

    def _read_of(self, conn: psycopg.Connection[Any], shards: list[int], limit: int, apart: bool) -> Read:
        """Lock these shards, but for those that others are just claiming, and read at most so many messages."""
        self._taken += shards
        locked = self._lock(conn, shards)
        if not locked:
            return NOTHING
        read = self._read(conn, locked, limit, apart)
        self._adapt(len(locked), limit, read)
        return Read(read.rows[:limit], read.shard_of)

    def _find(self, conn: psycopg.Connection[Any]) -> list[tuple[int, int]]:
        """Free shards with ready messages beside those that are known, and the first id of each."""
        params = {"sink": self._settings.name, "edges": list(self.mark.after), "known": self._edge.line.known()}
        return conn.execute(statement("claims/find_shards"), params, binary=True).fetchall()

    def _lock(self, conn: psycopg.Connection[Any], shards: list[int]) -> list[int]:
        """Lock them, but for those that somebody else is just claiming."""
        params = {"sink": self._settings.name, "shards": shards}
        found = conn.execute(statement("claims/lock_shards"), params, binary=True).fetchall()
        self.claimed_us = us_since_1970(found[0][2])
        self._edge.met(found[0][3])
        self.mark = self._edge.mark if self._edge.mark.generation != self.mark.generation else self.mark
        return [shard for shard, is_locked, *_ in found if is_locked]

    def _read(self, conn: psycopg.Connection[Any], shards: list[int], limit: int, apart: bool) -> Read:
        """Read messages of locked shards.

        Who else claims one of them holds its lock until that can be seen, and this statement's snapshot is younger than
        our lock: so what no claim has by now is ours, and what its last owner delivered is gone.
        """
        edges = self.mark.after
        part = self._settings.batch_bytes // limit
        params = {
            "sink": self._settings.name,
            "shards": shards,
            # Resharded since this worker started, there may be more of them.
            "edges": [edges[shard] if shard < len(edges) else 0 for shard in shards],
            "messages": limit,
            "each": each(limit, len(shards)),
            "bytes": self._settings.batch_bytes,
            "part": part,
            "apart": apart,
        }
        if self._small and not apart:
            read = Read.told_once(conn.execute(statement("claims/read_small_shards"), params, binary=True))
            if read.rows and all(row[4] is not None or row[5] is not None for row in read.rows):
                return read
        read = Read.told_each(conn.execute(statement("claims/read_shards"), params, binary=True))
        # What is longer may be compressed, and then the other statement cannot tell its size.
        small = min(part, NEVER_COMPRESSED)
        self._small = all(row[13] is None and len(row[4] or row[5] or b"") < small for row in read.rows)
        return read

    def _adapt(self, shards: int, limit: int, read: Read) -> None:
        """Choose how many shards the next claim takes."""
        counts = Counter(read.shard_of.values())
        # In id order: of what is claimed the last one of a shard counts, of what is left the first one.
        at = {read.shard_of[row[1]]: row[1] for row in read.rows[:limit]}
        at.update({read.shard_of[row[1]]: row[1] for row in reversed(read.rows[limit:])})
        self.more = [(shard, at[shard]) for shard, count in counts.items() if count >= each(limit, shards)]
        deep = len(self.more)
        if not deep:
            self._want = self._settings.shards
        elif len(read.rows) * 2 > limit:
            self._want = self._share
        else:
            # A few shards hold most of what waits: every other claim takes only so many, and more of each.
            self._want = deep


def share(shards: int, workers: int) -> int:
    """Shards a claim takes where all are deep: so few that other relays find some too; but while that leaves enough for
    one more, not so few that each page of the table is read by many claims. Of 64, one worker takes 16, each of four
    workers 8, each of sixteen 2."""
    return max(1, shards // (4 * workers), min(8, shards // (2 * workers)))


def each(limit: int, shards: int) -> int:
    """Messages to read of each of so many shards: its part and one more, which tells whether it holds more."""
    return limit // shards + 1


def _id_of(row: Sequence[Any]) -> int:
    message_id: int = row[1]
    return message_id
