"""Shards that are known to hold more, so that not every claim has to look into all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable


class Line:
    """Ready shards that nobody of this process holds, shared by its workers.

    Those that were read least far come first: shards that are read at the same pace share the pages that they are read
    from. It is a hint only; what somebody else has done with a shard meanwhile is found out when it is read.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ready: dict[int, int] = {}
        """Shard, and an id that all it holds is at or above."""
        self._taken: dict[int, float] = {}
        """Shard, and until when nobody else looks into it: whoever has it may never come back."""
        self._turn = 0

    def is_time_to_look(self, every: int) -> bool:
        """Whether this claim is the one in so many that looks for others too."""
        with self._lock:
            self._turn += 1
            return self._turn % every == 0

    def known(self) -> list[int]:
        """Those in the line and those taken from it: it is no use to look into them."""
        with self._lock:
            now = time.monotonic()
            return [*self._ready, *(shard for shard, until in self._taken.items() if until > now)]

    def take(self, shards: int, seconds: float) -> list[int]:
        """At most so many of them, for at most so long."""
        with self._lock:
            taken = sorted(self._ready, key=self._ready.__getitem__)[:shards]
            for shard in taken:
                del self._ready[shard]
            self._taken.update(dict.fromkeys(taken, time.monotonic() + seconds))
            return taken

    def give_back(self, taken: Iterable[int], more: Iterable[tuple[int, int]] = ()) -> None:
        """Whoever took these is done with them; some hold more, each at or above an id."""
        with self._lock:
            for shard in taken:
                self._taken.pop(shard, None)
            self._ready.update(more)

    def join(self, ready: Iterable[tuple[int, int]]) -> None:
        """Take in shards that hold something, each at or above an id."""
        with self._lock:
            self._ready.update(ready)

    def clear(self) -> None:
        """Forget all of them."""
        with self._lock:
            self._ready.clear()
