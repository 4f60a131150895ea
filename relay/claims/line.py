"""Shards that are known to hold more, so that not every claim has to look into all of them."""

from __future__ import annotations

import threading
from collections.abc import Iterable


class Line:
    """Ready shards, shared by the workers of one relay.

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
