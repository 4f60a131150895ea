"""A Redis Cluster, for one sender: which node serves a slot, and calls to it.

redis-py's own cluster client is not used: it sends again by itself, where the relay must know what became of a request.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any, Final
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


def _owners(ranges: list[Any], asked: Address) -> dict[int, Address]:
    """The primary of each slot, as `CLUSTER SLOTS` of one node tells it."""
    owners: dict[int, Address] = {}
    for first, last, (host, port, *_), *_ in ranges:
        # A node that does not know its own name gives none.
        address = (host.decode() if host else asked[0], port)
        owners.update(dict.fromkeys(range(first, last + 1), address))
    return owners


class Cluster:
    """The nodes of a cluster."""

    def __init__(self, place: Place, config: SinkConfig) -> None:
        self._place = place
        self._config = config
        self._connections: dict[Address, RedisConnection] = {}
        self._owners: dict[int, Address] = {}
        self.largest_argument = LARGEST_ARGUMENT
        """Bytes; as the node said that was asked last."""
        for address in place.addresses:
            self._connection(address)

    def learn(self) -> None:
        """Ask which node serves which slot.

        Raises:
            SinkUnavailable: no node can say.
        """
        reason = "no node of the cluster answers"
        deadline = time.monotonic() + self._config.send_timeout
        for address, connection in list(self._connections.items()):
            if time.monotonic() > deadline:
                break
            try:
                (ranges,) = connection.call(request("CLUSTER", "SLOTS"))
            except SinkUnavailable as error:
                reason = error.reason
                self._connections[address] = self._connections.pop(address)  # the next time it is asked last
                continue
            self._owners = _owners(ranges, address)
            client = redis.Redis(connection_pool=connection.pool)
            warn_of_eviction(eviction_policy(client))
            self.largest_argument = largest_argument(client)
            return
        raise SinkUnavailable(reason, unknown=False)

    def owner(self, slot: int) -> Address | None:
        """The node that serves a slot, as far as is known."""
        return self._owners.get(slot)

    @property
    def nodes(self) -> set[Address]:
        """The nodes that serve slots."""
        return set(self._owners.values())

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
                self._owners[slot] = (moved[0] or owner[0], moved[1])
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
