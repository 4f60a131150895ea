"""The one server of a URL, and what any server says of itself when a sink is opened."""

from __future__ import annotations

import logging
import socket
import threading
import time
from functools import cache
from typing import Final

import redis

from sinks.base import SinkConfig
from sinks.redis.connection import RedisConnection
from sinks.redis.pool import pool_at
from sinks.redis.url import Place

log = logging.getLogger("sinks.redis")

LARGEST_ARGUMENT = 512 * 2**20
"""Bytes: `proto-max-bulk-len` of a server that nobody has changed (redis.conf)."""

LOOK_UP_S: Final = 5.0
"""Between two questions where a name leads."""


class Name:
    """Where a host's name leads, looked up every few seconds: a fail-over may move it and leave the old server alive.

    The resolver is asked in the background, as its answer may take longer than a send.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._addresses: frozenset[str] = frozenset()
        self._asked_at = time.monotonic()
        self._asking: threading.Thread | None = None

    def left(self, address: str) -> bool:
        """Whether it leads to other addresses now, as far as is known."""
        if time.monotonic() - self._asked_at >= LOOK_UP_S and not (self._asking and self._asking.is_alive()):
            self._asked_at = time.monotonic()
            self._asking = threading.Thread(target=self._look_up, name="redis-name", daemon=True)
            self._asking.start()
        return bool(self._addresses) and address not in self._addresses

    def _look_up(self) -> None:
        try:
            found = socket.getaddrinfo(*self._target, type=socket.SOCK_STREAM)
        except OSError:
            return  # nobody knows better: what was connected stays so
        self._addresses = frozenset(str(address[0]) for *_, address in found)


class Server:
    """The one server of a URL."""

    def __init__(self, place: Place, config: SinkConfig, replicas: int | None) -> None:
        self.connection = RedisConnection(pool_at(place, config))
        self._replicas = replicas or 0
        host, port = place.options.get("host"), place.options.get("port", 6379)
        self._name = Name(host, port) if host else None

    def find(self) -> int:
        """How many replicas must confirm a batch."""
        peer = self.connection.peer
        if peer and self._name and self._name.left(peer):
            log.info("redis_server moved from=%s: its name leads elsewhere now", peer)
            self.connection.drop()
        return self._replicas

    def confirm(self, replicas: int) -> None:
        """Nothing: nobody else knows who the primary is."""

    def drop(self) -> None:
        self.connection.drop()


def is_cluster_node(client: redis.Redis) -> bool:
    """False, too, where a managed server hides it."""
    try:
        return bool(client.info("cluster").get("cluster_enabled"))
    except redis.RedisError:
        return False


def largest_argument(client: redis.Redis) -> int:
    """Bytes that one argument may have; the default where a managed server hides it."""
    try:
        return int(client.config_get("proto-max-bulk-len")["proto-max-bulk-len"] or LARGEST_ARGUMENT)
    except (redis.RedisError, KeyError):
        return LARGEST_ARGUMENT


def eviction_policy(client: redis.Redis) -> str:
    """`maxmemory-policy`, or `"unknown"` where a managed server hides it."""
    try:
        return str(client.info("memory").get("maxmemory_policy", "unknown"))
    except redis.RedisError:
        return "unknown"


@cache
def warn_of_eviction(policy: str) -> None:
    """Log, once in this process for each policy, what it means for messages that were acknowledged."""
    if policy == "unknown":
        log.info("redis_eviction policy=unknown: it should be noeviction, or Redis may drop what it acknowledged")
    elif policy.startswith("volatile-"):
        log.warning(
            "redis_eviction policy=%s: under memory pressure marks of unsettled batches may go, and with them "
            "the protection against duplicates; use noeviction",
            policy,
        )
    elif policy != "noeviction":
        log.warning(
            "redis_eviction policy=%s: under memory pressure delivered messages may be dropped; use noeviction", policy
        )
