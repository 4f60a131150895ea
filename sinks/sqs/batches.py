"""Which entries go into which call, and which have to wait for others.

A *lane* is what must stay in order: a key of an ordered sink, a message group of a FIFO queue; on a standard queue
each message is its own. While a call with entries of a lane is in flight, nothing else of that lane leaves.

SQS may take a later entry of a call and fail an earlier one, so an ordered sink has at most one entry of a lane in a
call: the price of order is a round trip for each message of a key, while up to ten keys share a call and several calls
are in flight. Without that promise a call carries as many of a group as fit, in their order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from sinks.sqs.entries import Entry

MOST_ENTRIES: Final = 10
"""Of one call; botocore's service model."""


class Batches:
    """The entries that are still to go, as calls.

    Args:
        entries: in the order of their lanes.
        limit: bytes that all entries of a call together may have, by queue.
        ordered: one entry of a lane at a time.
    """

    def __init__(self, entries: Iterable[Entry], limit: Callable[[str], int], *, ordered: bool) -> None:
        self._limit = limit
        self._most_of_lane = 1 if ordered else MOST_ENTRIES
        # Each lane backwards, so that its next entry is popped off the end.
        self._lanes: dict[str | int, list[Entry]] = {}
        for entry in entries:
            self._lanes.setdefault(entry.lane, []).append(entry)
        for lane in self._lanes.values():
            lane.reverse()
        self._alone: set[int] = set()
        self._ready: dict[str, deque[str | int]] = {}
        for name in self._lanes:
            self._make_ready(name)

    def next_call(self, may: Callable[[str], bool] = lambda queue: True) -> list[Entry]:
        """Entries of one queue that may leave together now; empty: none may, until a call that is in flight ends.

        Args:
            may: whether a queue takes another call now.
        """
        queue = next(filter(may, self._ready), None)
        if queue is None:
            return []
        lanes = self._ready[queue]
        call: list[Entry] = []
        room = self._limit(queue)
        while lanes and len(call) < MOST_ENTRIES:
            entries = self._lanes[lanes[0]]
            taken = 0
            while entries and taken < self._most_of_lane and self._fits(entries[-1], queue, call, room):
                entry = entries.pop()
                call.append(entry)
                room -= entry.size
                taken += 1
            if not taken:
                break
            lanes.popleft()
        # To the end, so that a queue with much to send holds up no other.
        del self._ready[queue]
        if lanes:
            self._ready[queue] = lanes
        return call

    def _fits(self, entry: Entry, queue: str, call: list[Entry], room: int) -> bool:
        if not call:
            return entry.queue == queue
        alone = entry.position in self._alone or call[0].position in self._alone
        return not alone and entry.queue == queue and entry.size <= room and len(call) < MOST_ENTRIES

    def ended(self, call: Iterable[Entry], stuck: Iterable[str | int] = ()) -> list[Entry]:
        """The call has its answer: its lanes may go on, but the `stuck` ones; return the entries that never leave."""
        stuck = set(stuck)
        left: list[Entry] = []
        for lane in dict.fromkeys(entry.lane for entry in call):
            if lane in stuck:
                left.extend(reversed(self._lanes.pop(lane)))
            else:
                self._make_ready(lane)
        return left

    def again_alone(self, call: list[Entry]) -> None:
        """The call was refused for what some entry of it holds: each one goes by itself."""
        self._alone.update(entry.position for entry in call)
        for entry in reversed(call):
            self._lanes[entry.lane].append(entry)
        self.ended(call)

    def rest(self) -> Iterator[Entry]:
        """Every entry that has not left."""
        for entries in self._lanes.values():
            yield from entries

    def _make_ready(self, lane: str | int) -> None:
        entries = self._lanes[lane]
        if not entries:
            return
        ready = self._ready.get(entries[-1].queue)
        if ready is None:
            ready = self._ready[entries[-1].queue] = deque()
        ready.append(lane)
