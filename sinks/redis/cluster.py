"""A Redis Cluster, for one sender: which node serves a slot, and calls to it.

redis-py's own cluster client is not used: it sends again by itself, where the relay must know what became of a request.
"""

from __future__ import annotations

import itertools
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple
from uuid import UUID

import redis
from redis.crc import key_slot

from sinks.base import Message, SinkConfig, SinkUnavailable
from sinks.redis.connection import RedisConnection, request
from sinks.redis.errors import moved_to
from sinks.redis.pool import pool_at
from sinks.redis.server import LARGEST_ARGUMENT, eviction_policy, largest_argument, warn_of_eviction
from sinks.redis.url import Address, Place

REDIRECTS: Final = 3
"""How often a call follows a slot that has moved."""
FRESH_S: Final = 1.0
"""For how long the cluster is believed to be as it was learnt."""
DEMOTION_S: Final = 3.0
"""So long after a fail-over the former primary may not be told yet that it is a replica, and may take over again."""


def slot_of(key: str) -> int:
    """The slot of a key."""
    return key_slot(key.encode())


class _AnyHeaders(dict[str, Any]):
    """Every header, each with this text in its value."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def get(self, name: str, default: Any = None) -> str:
        return f"{{{self._text}}}{name}"


def one_slot(name: Callable[[Message], str], *, of_key: bool) -> bool:
    """Whether what `name` calls messages is always in one slot; `of_key`: whether it is for messages of the same key.

    Tried out, with messages that have nothing in common, or nothing but their key.
    """
    probes = [
        Message(
            id=number,
            kind=f"{{{number}}}",
            key="key" if of_key else f"key-{number}",
            payload=b"",
            body=None,
            headers=_AnyHeaders(str(number)),
            message_id=UUID(int=number),
            attempts=1,
            created_us=number,
        )
        for number in range(1, 5)
    ]
    return len({slot_of(name(probe)) for probe in probes}) == 1


class Tags(dict[int, str]):
    """For each slot a hash tag that leads to it, found when it is first asked for."""

    def __missing__(self, slot: int) -> str:
        # A tenth of a second for all of them together, so that one by one they cost nothing.
        while slot not in self:
            tag = str(next(self._numbers))
            self.setdefault(slot_of(tag), tag)
        return self[slot]

    _numbers = itertools.count()


class Range(NamedTuple):
    """Slots that are served together."""

    first: int
    last: int
    owner: Address
    replicas: int
    """How many could take over."""


def _ranges(answer: list[Any], asked: Address) -> list[Range]:
    """What `CLUSTER SLOTS` of one node says, which leaves out replicas that are gone."""
    # A node that does not know its own name gives none.
    return sorted(
        Range(first, last, (host.decode() if host else asked[0], port), len(replicas))
        for first, last, (host, port, *_), *replicas in answer
    )


def _range_of(slot: int, ranges: list[Range]) -> Range | None:
    at = bisect_right(ranges, slot, key=lambda each: each.first) - 1
    return ranges[at] if at >= 0 and slot <= ranges[at].last else None


class Cluster:
    """The nodes of a cluster."""

    def __init__(self, place: Place, config: SinkConfig) -> None:
        self._place = place
        self._config = config
        self._connections: dict[Address, RedisConnection] = {}
        self._ranges: list[Range] = []
        self._former: deque[tuple[float, list[Range]]] = deque()
        """What was learnt within `DEMOTION_S`, and when."""
        self._moved: dict[int, Address] = {}
        """Owners of slots as refusals told them, since the ranges were learnt."""
        self._learnt_at = 0.0
        self.largest_argument = LARGEST_ARGUMENT
        """Bytes; as the node said that was asked last."""
        for address in place.addresses:
            self._connection(address)

    def open(self) -> None:
        """Learn who serves what, and what such a server takes.

        Raises:
            SinkUnavailable: no node can say.
        """
        client = redis.Redis(connection_pool=self._learn().pool)
        warn_of_eviction(eviction_policy(client))
        self.largest_argument = largest_argument(client)

    def refresh(self, *, at_once: bool) -> None:
        """Learn again who serves what, and who could take over; `at_once`: however new that is.

        Raises:
            SinkUnavailable: no node can say.
        """
        if at_once or time.monotonic() - self._learnt_at >= FRESH_S:
            self._learn()

    def _learn(self) -> RedisConnection:
        """Ask the nodes until one says that its cluster works; the connection to it."""
        reason = "no node of the cluster answers"
        now = time.monotonic()
        for address, connection in list(self._connections.items()):
            if time.monotonic() > now + self._config.send_timeout:
                break
            try:
                answer, info = connection.call(request("CLUSTER", "SLOTS"), request("CLUSTER", "INFO"))
            except SinkUnavailable as error:
                reason = error.reason
            else:
                # A node that a partition cut off still names itself; denied is no news.
                if not isinstance(info, bytes) or b"cluster_state:fail" not in info:
                    self._accept(_ranges(answer, address), now)
                    return connection
                reason = f"CLUSTERDOWN says {address[0]}:{address[1]}"
            self._connections[address] = self._connections.pop(address)  # the next time it is asked last
        raise SinkUnavailable(reason, unknown=False)

    def _accept(self, ranges: list[Range], now: float) -> None:
        self._learnt_at = now
        self._ranges, self._moved = ranges, {}
        self._former.append((now, ranges))
        while self._former[0][0] < now - DEMOTION_S:
            self._former.popleft()
        for address in self._connections.keys() - self.nodes - set(self._place.addresses):
            self._connections.pop(address).drop()

    def owner(self, slot: int) -> Address | None:
        """The node that serves a slot, as far as is known."""
        found = _range_of(slot, self._ranges)
        return self._moved.get(slot) or (found.owner if found else None)

    def replicas(self, slot: int) -> int:
        """How many of them could take the slot over from its node, now or within the last seconds."""
        found = [_range_of(slot, ranges) for _, ranges in self._former]
        return max((each.replicas for each in found if each), default=0)

    @property
    def nodes(self) -> set[Address]:
        """The nodes that serve slots."""
        return {each.owner for each in self._ranges}

    def call(self, slot: int, *requests: bytes) -> list[Any]:
        """As `RedisConnection.call`, to the node that serves a slot."""
        for _ in range(REDIRECTS):
            owner = self.owner(slot)
            if owner is None:
                raise SinkUnavailable(f"no node serves slot {slot}", unknown=False)
            try:
                return self._connection(owner).call(*requests)
            except SinkUnavailable as error:
                moved = moved_to(error.reason)
                if moved is None:
                    raise
                self._moved[slot] = (moved[0] or owner[0], moved[1])
        raise SinkUnavailable(f"slot {slot} moves on and on", unknown=False)

    def _connection(self, address: Address) -> RedisConnection:
        if address not in self._connections:
            self._connections[address] = RedisConnection(pool_at(self._place, self._config, address))
        return self._connections[address]

    def drop(self, slot: int | None = None) -> None:
        """Close the connection to the node that serves a slot, or all; the next call makes new ones."""
        owner = None if slot is None else self.owner(slot)
        for address, connection in self._connections.items():
            if slot is None or address == owner:
                connection.drop()
