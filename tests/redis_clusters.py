"""A cluster for tests, each node behind a proxy, and streams whose slots are on known nodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import redis

from sinks.redis.cluster import slot_of
from tests.redis_sinks import marks, payloads
from tests.servers.base import LOCALHOST
from tests.servers.proxy import FaultProxy
from tests.servers.redis import DEFAULT_VERSION, SLOTS, RedisServer, run_redis_cluster


@dataclass(frozen=True)
class Cluster:
    """Primaries that share the slots evenly; clients find each one behind its proxy."""

    nodes: list[RedisServer]
    clients: list[redis.Redis]
    """One for each node, past its proxy."""
    proxies: list[FaultProxy]

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"{LOCALHOST}:{proxy.port}" for proxy in self.proxies)

    def stream(self, node: int, number: int = 0) -> str:
        """The name of a stream on this node, another one for each number."""
        here = range(SLOTS * node // len(self.nodes), SLOTS * (node + 1) // len(self.nodes))
        found = (name for name in map("stream-{}".format, range(100_000)) if slot_of(name) in here)
        return next(name for position, name in enumerate(found) if position == number)

    def payloads(self, stream: str) -> list[bytes]:
        """What is in a stream, wherever it is."""
        return [entry for client in self.clients for entry in _payloads(client, stream)]

    def marks(self) -> dict[str, list[str]]:
        """The marks on all nodes: token in hex → what they say."""
        found: dict[str, list[str]] = {}
        for client in self.clients:
            for token, says in marks(client).items():
                found.setdefault(token, []).append(says)
        return found

    def clear(self) -> None:
        for client in self.clients:
            client.flushall()

    def clear_streams(self, *nodes: int) -> None:
        """Empty the first stream of these nodes."""
        for node in nodes:
            self.clients[node].delete(self.stream(node))

    def begin_to_move(self, slot: int, source: int, target: int) -> None:
        """Open the slot at both ends; its keys are where they were."""
        ids = [client.execute_command("CLUSTER MYID").decode() for client in self.clients]
        self.clients[target].execute_command("CLUSTER SETSLOT", slot, "IMPORTING", ids[source])
        self.clients[source].execute_command("CLUSTER SETSLOT", slot, "MIGRATING", ids[target])

    def end_to_move(self, slot: int, source: int, target: int) -> None:
        """Move the slot's keys, then give the slot away."""
        while keys := self.clients[source].execute_command("CLUSTER GETKEYSINSLOT", slot, 100):
            arguments = ["MIGRATE", LOCALHOST, self.nodes[target].port, "", 0, 5000, "KEYS", *keys]
            self.clients[source].execute_command(*arguments)
        target_id = self.clients[target].execute_command("CLUSTER MYID").decode()
        for node in (target, source):
            self.clients[node].execute_command("CLUSTER SETSLOT", slot, "NODE", target_id)


def _payloads(client: redis.Redis, stream: str) -> list[bytes]:
    try:
        return payloads(client, stream)
    except redis.ResponseError:  # it has moved
        return []


@contextmanager
def run_cluster(version: str = DEFAULT_VERSION) -> Iterator[Cluster]:
    with ExitStack() as stack:
        proxies: dict[int, FaultProxy] = {}

        def told(port: int) -> int:
            proxies[port] = stack.enter_context(FaultProxy(LOCALHOST, port))
            return proxies[port].port

        nodes = stack.enter_context(run_redis_cluster(version, told=told))
        clients = [stack.enter_context(node.client()) for node in nodes]
        yield Cluster(nodes, clients, [proxies[node.port] for node in nodes])
