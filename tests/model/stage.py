"""The servers of a run, which are killed and started again, and the wires of a seed that lead to them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from tests.redis_clusters import Cluster, run_cluster
from tests.servers import kafka
from tests.servers.base import Server, free_port
from tests.servers.kafka import KafkaCluster
from tests.servers.postgres import PostgresCluster, new_cluster
from tests.servers.proxy import FaultProxy
from tests.servers.redis import RedisServer, Sentinel, run_redis, run_redis_sentinel

T = TypeVar("T")
NEEDS_REDIS = ("stream", "jobs")
BROKERS = 3


class Restartable(Generic[T]):
    """A server that may be killed, and started again on the same data and port.

    Args:
        run: runs it for the length of a `with` block.
    """

    def __init__(self, run: Callable[[], AbstractContextManager[T]]) -> None:
        self._run = run
        self._running = ExitStack()
        self.up = False

    def start(self) -> None:
        """Unless it runs."""
        if not self.up:
            self.server = self._running.enter_context(self._run())
            self.up = True

    def stop(self) -> None:
        self.up = False
        self._running.close()

    def kill(self, server: Server) -> None:
        """SIGKILL the whole group."""
        server.kill()
        self.stop()


@dataclass
class Stage:
    """What all seeds of a run share. What no sink needs is not there."""

    cluster: PostgresCluster
    postgres: Restartable[Server]
    redis: Restartable[RedisServer]
    slots: Cluster | None = None
    sentinel: Sentinel | None = None
    kafka: KafkaCluster | None = None

    def clear(self) -> None:
        """Forget what an earlier seed left. Topics are new for each."""
        for server in self._redis_servers():
            with server.client() as client:
                client.flushall()

    def _redis_servers(self) -> Iterator[RedisServer]:
        if self.redis.up:
            yield self.redis.server
        if self.slots:
            yield from self.slots.nodes
        if self.sentinel:
            yield self.sentinel.current()


@contextmanager
def stage(sinks: Sequence[str], postgres: int, redis: str) -> Iterator[Stage]:
    """Start what these sinks need.

    Args:
        postgres: its version.
        redis: such as "redis:7.0".
    """
    with ExitStack() as stack:
        cluster = stack.enter_context(new_cluster(postgres))
        database = Restartable(lambda: cluster.run(max_prepared_transactions=20))
        stack.callback(database.stop)
        database.start()
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relay-model-redis-")))
        port = free_port()
        # What it acknowledged it has written: whatever kills it then is no excuse.
        options = ("--appendonly", "yes", "--appendfsync", "always")
        server = Restartable(lambda: run_redis(redis, *options, port=port, folder=folder))
        stack.callback(server.stop)
        if any(name.startswith(NEEDS_REDIS) for name in sinks):
            server.start()
        yield Stage(
            cluster,
            database,
            server,
            slots=stack.enter_context(run_cluster(redis)) if _any(sinks, "slots") else None,
            sentinel=stack.enter_context(run_redis_sentinel(redis)) if _any(sinks, "sentinel") else None,
            kafka=stack.enter_context(kafka.new_cluster(BROKERS)) if _any(sinks, "kafka") else None,
        )


def _any(sinks: Sequence[str], beginning: str) -> bool:
    return any(name.startswith(beginning) for name in sinks)


class Wires:
    """Proxies of a seed: one for each relay and server, so that what one relay sends can be held back alone.

    Args:
        folder: of the seed.
        urls: of the servers, by name.
    """

    def __init__(self, stack: ExitStack, folder: Path, relays: int, urls: dict[str, str]) -> None:
        self.folder = folder
        self.urls = urls
        self.proxies = {
            name: [stack.enter_context(FaultProxy.before(url)) for _ in range(relays)] for name, url in urls.items()
        }

    def environment(self, relay: int) -> dict[str, str]:
        """What leads this relay to its proxies."""
        database = self.proxies["postgres"][relay].url(self.urls["postgres"])
        ports = {f"{name}.model": proxies[relay].port for name, proxies in self.proxies.items()}
        return {"RELAY_DATABASE_URL": database, "MODEL_PORTS": json.dumps(ports)}

    def heal(self) -> None:
        """End all faults."""
        for proxies in self.proxies.values():
            for proxy in proxies:
                proxy.resume()
