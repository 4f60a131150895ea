"""Where reading the shards of an ordered sink starts.

While some session holds an old snapshot, nothing that left the queue can be cleaned from its index, and a scan from the
left edge wades through all of it. So reading starts after an id up to which nothing is left. Nothing may appear there
later either, or a message would be overtaken by later ones of its key. An id is drawn before its transaction
commits: so the last id that was drawn becomes the limit of all edges only once every transaction that was writing then
is over. What comes back under an old id has an index of its own, and is always read.

A server that was restarted, or took over from another one, may draw ids again that it had drawn, and knows prepared
transactions by other names. So all of this is forgotten with each new connection, and when the server says that it was
started at another time: a pooler (PAUSE, RESUME) can lead a connection to another one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from relay.database.connection import Database
from relay.statements import statement

EVERY_S = 0.05
LOOK_EVERY_S = 1.0
"""What this process delivers moves the edges too: to look is for what others deliver."""
EVERYTHING_EVERY_S = 60.0
SHARE = 0.1
"""Part of the time that moving the edges may take."""


class Line:
    """Shards that are known to hold more, so that not every claim has to look into all of them. Shared by the workers
    of one relay.

    Those that were read least far come first: shards that are read at the same pace share the pages that they are read
    from. It is a hint only; what somebody else has done with a shard meanwhile is found out when it is read.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ready: dict[int, int] = {}
        """Shard, and an id that all it holds is at or above."""
        self._busy: set[int] = set()
        """Those that one of the workers is just claiming or settling: only between these two does the database tell."""
        self._turn = 0

    def is_time_to_look(self, every: int) -> bool:
        """Whether this claim is the one in so many that looks for others too."""
        with self._lock:
            self._turn += 1
            return self._turn % every == 0

    def known(self) -> list[int]:
        """Those in the line and those that somebody is busy with: it is no use to look into them."""
        with self._lock:
            return [*self._ready, *self._busy]

    def take(self, shards: int) -> list[int]:
        """At most so many of them; the caller is busy with them until it says that it is done."""
        with self._lock:
            taken = sorted(self._ready, key=self._ready.__getitem__)[:shards]
            for shard in taken:
                del self._ready[shard]
            self._busy.update(taken)
            return taken

    def busy(self, shards: Iterable[int]) -> None:
        """The caller is busy with these until it says that it is done."""
        with self._lock:
            self._busy.update(shards)

    def done(self, shards: Iterable[int]) -> None:
        """The caller is not busy with these any more."""
        with self._lock:
            self._busy.difference_update(shards)

    def join(self, ready: Iterable[tuple[int, int]]) -> None:
        """Take in shards that hold something, each at or above an id."""
        with self._lock:
            self._ready.update(ready)

    def clear(self) -> None:
        """Forget all of them."""
        with self._lock:
            self._ready.clear()


class Mark(NamedTuple):
    """The edges as they are at one moment."""

    after: tuple[int, ...]
    """For each shard the id up to which nothing is left."""
    quiet: int
    """The id up to which nobody was writing any more."""
    generation: int
    """How often everything was forgotten before."""


class Edge:
    """The edges of one sink's shards, shared by the workers of this process.

    Raises:
        DatabaseUnavailable: from `move`.
        RelayError: from `move`.
    """

    def __init__(self, sink: str, shards: int) -> None:
        self.mark = Mark((0,) * shards, 0, 0)
        self.line = Line()
        self._sink = sink
        self._changing = threading.Lock()
        self._moving = threading.Lock()
        self._candidate = 0
        self._writers: set[str] = set()
        """Transactions that may still commit messages up to the candidate."""
        self._generation = 0
        """That the candidate belongs to."""
        self._started_us = 0
        """When the server was started that all this is about."""
        self._move_at = self._look_at = 0.0
        self._everything_at = time.monotonic() + EVERYTHING_EVERY_S

    def passed(self, mark: Mark, last: Mapping[int, int]) -> None:
        """All that was ready in these shards, up to these ids, was delivered by whoever held them.

        Args:
            mark: taken before the messages were read.
        """
        with self._changing:
            if mark.generation != self.mark.generation:
                return
            after = list(self.mark.after)
            for shard, message_id in last.items():
                # An edge that was moved back meanwhile was so for a message that this reader did not see.
                if shard < len(after) and after[shard] >= mark.after[shard]:
                    after[shard] = max(after[shard], min(message_id, mark.quiet))
            self.mark = self.mark._replace(after=tuple(after))

    def forget(self) -> None:
        """Begin anew: the server may not be the one that it was."""
        with self._changing:
            self.mark = Mark((0,) * len(self.mark.after), 0, self.mark.generation + 1)
        self.line.clear()
        self._move_at = self._look_at = 0.0

    def met(self, started_us: int) -> None:
        """A server answered that was started then, by its clock: begin anew if it is another one."""
        before, self._started_us = self._started_us, started_us
        if before not in (0, started_us):
            self.forget()

    def move(self, database: Database) -> None:
        """Move on, if it is time. Not inside a transaction: each look needs a snapshot of its own."""
        if self._moving.acquire(blocking=False):
            try:
                self._move(database, time.monotonic())
            finally:
                self._moving.release()

    def _move(self, database: Database, now: float) -> None:
        if now < self._move_at:
            return
        # In this order: an id that is drawn by now belongs to a transaction that is over or among the writers. Who is
        # over now can be seen by the next statement: a transaction gives up its locks last.
        drawn, started_us = database.query(statement("claims/last_id"))[0]
        self.met(started_us)
        generation = self.mark.generation
        if generation != self._generation:
            self._candidate, self._writers, self._generation = 0, set(), generation
        if drawn < max(self.mark.quiet, self._candidate):
            self.forget()
            return
        writing = {row[0] for row in database.query(statement("claims/writers"), {"tables": ["relay.outbox"]})}
        self._writers &= writing
        if not self._writers:
            over, self._candidate, self._writers = self._candidate, drawn, writing
            quiet = over if writing else drawn
            if now >= min(self._look_at, self._everything_at):
                self._look(database, quiet, generation, now)
            else:
                self._limit(quiet, generation)
        elif now >= self._everything_at:
            self._look(database, self.mark.quiet, generation, now)
        self._move_at = now + max(EVERY_S, (time.monotonic() - now) / SHARE)

    def _limit(self, quiet: int, generation: int) -> None:
        """Let the edges move up to here."""
        with self._changing:
            if generation == self.mark.generation:
                self.mark = self.mark._replace(quiet=quiet)

    def _look(self, database: Database, quiet: int, generation: int, now: float) -> None:
        """Find the edges, at most at an id below which nobody is writing any more."""
        # At times everywhere: a message that somebody made ready by hand may be below the edge.
        everywhere = now >= self._everything_at
        after = (0,) * len(self.mark.after) if everywhere else self.mark.after
        params = {"sink": self._sink, "edges": list(after), "highest": quiet}
        found = [row[0] for row in database.query(statement("claims/edges"), params)]
        with self._changing:
            if generation != self.mark.generation:
                return
            if not everywhere:
                found = list(map(max, found, self.mark.after))
            self.mark = Mark(tuple(found), quiet, generation)
        self._look_at = now + LOOK_EVERY_S
        if everywhere:
            self._everything_at = now + max(EVERYTHING_EVERY_S, (time.monotonic() - now) / SHARE)
