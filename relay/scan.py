"""Where a claim starts to look, and for how many messages.

While some session holds an old snapshot, nothing that left the queue can be cleaned from its index, and a scan from
the left edge wades through all of it. So a worker goes on after the last id that it claimed. Ids commit out of
order and messages come back, so this is a hint only: at times it looks through everything, more rarely the dearer the
last such look was.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

FULL_SCAN_SHARE = 0.05
"""Part of the time that full scans may take."""


class Scan:
    """One worker's scan state.

    Args:
        messages: most messages a claim.
        size: most bytes a claim.
        shards: how many index ranges there are.
    """

    def __init__(self, messages: int, size: int, shards: int = 1) -> None:
        self._messages = messages
        self._size = size
        self._after = [0] * shards
        self._highest = [0] * shards
        self._full_at = 0.0
        self._full = False
        self._started = 0.0
        self.limit = messages
        """How many rows are worth locking or reading: fewer while messages are so big that bytes decide."""

    def start(self) -> list[int]:
        """For each shard the id after which to look; 0 = everywhere."""
        self._started = time.monotonic()
        self._full = self._started >= self._full_at
        return [0] * len(self._after) if self._full else list(self._after)

    def found(self, last: Mapping[int, int], messages: int, size: int) -> None:
        """Take note of what the scan found: the last id of each shard, how many messages, how many bytes."""
        if self._full:
            now = time.monotonic()
            self._full_at = now + (now - self._started) * (1 / FULL_SCAN_SHARE - 1)
        if not last:
            # Nothing lies after the hints, wherever they stood.
            self._after = list(self._highest)
            return
        for shard, message_id in last.items():
            self._after[shard] = message_id
            self._highest[shard] = max(self._highest[shard], message_id)
        by_bytes = size * 2 > self._size
        self.limit = min(self._messages, 2 * messages) if by_bytes else self._messages

    def go_back(self, shard: int, message_id: int) -> None:
        """This message is ready again."""
        self._after[shard] = min(self._after[shard], message_id - 1)
