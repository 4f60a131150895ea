"""Where reading the shards of an ordered sink starts.

While some session holds an old snapshot, nothing that left the queue can be cleaned from its index, and a scan from the
left edge wades through all of it. So reading starts after an id up to which nothing is left. Nothing may appear there
later either, or a message would be overtaken by later ones of its key. An id is drawn before its transaction
commits: so an id that was seen becomes the edge only once every transaction that was writing then is over. What comes
back under an old id has an index of its own, and is always read.
"""

from __future__ import annotations

import time

from relay.database import Database
from relay.statements import statement

EVERY_S = 0.05
EVERYTHING_EVERY_S = 60.0
SHARE = 0.1
"""Part of the time that moving the edges may take."""


class Edge:
    """The edges of one sink's shards, as one worker knows them.

    Raises:
        DatabaseUnavailable: from `move`.
        RelayError: from `move`.
    """

    def __init__(self, database: Database, sink: str, shards: int) -> None:
        self._database = database
        self._sink = sink
        self.after = [0] * shards
        """For each shard the id up to which nothing is left."""
        self._seen = 0
        self._candidate = 0
        self._writers: set[str] = set()
        """Transactions that may still commit messages up to the candidate."""
        self._move_at = 0.0
        self._everything_at = time.monotonic() + EVERYTHING_EVERY_S

    def saw(self, message_id: int) -> None:
        """A message with this id was read."""
        self._seen = max(self._seen, message_id)

    def move(self) -> None:
        """Move on, if it is time. Not inside a transaction: each look needs a snapshot of its own."""
        now = time.monotonic()
        if now < self._move_at:
            return
        # Who is over now can be seen by the next statement: a transaction gives up its locks last.
        writing = {row[0] for row in self._database.query(statement("writers"), {"tables": ["relay.outbox"]})}
        self._writers &= writing
        if not self._writers:
            over, self._candidate, self._writers = self._candidate, self._seen, writing
            self._look(over if writing else self._seen, now)
        self._move_at = now + max(EVERY_S, (time.monotonic() - now) / SHARE)

    def _look(self, highest: int, now: float) -> None:
        """Find the edges, at most at an id below which nobody is writing any more."""
        edges = self.after
        if now >= self._everything_at:
            # A message that somebody made ready by hand, below the edge.
            edges = [0] * len(edges)
        params = {"sink": self._sink, "edges": edges, "highest": highest}
        self.after = [row[0] for row in self._database.query(statement("edges"), params)]
        if now >= self._everything_at:
            self._everything_at = now + max(EVERYTHING_EVERY_S, (time.monotonic() - now) / SHARE)
