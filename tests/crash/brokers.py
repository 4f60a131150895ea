"""What the crash test sends to, and what each broker holds in the end."""

from __future__ import annotations

import json
import random
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from tests.crash import faults
from tests.redis_clusters import Cluster, run_cluster
from tests.servers import elasticmq, kafka
from tests.servers.proxy import FaultProxy
from tests.servers.redis import RedisServer, run_redis

REDIS = "redis:7.0"


class Copy(NamedTuple):
    """A message as the broker holds it; copies come in the broker's order, for each key."""

    number: int
    key: str


class Broker(ABC):
    """One sink of the test.

    `exact`: second copies are a fault. `ordered`: a key's first copies must rise. `send_s`: seconds for a send.
    """

    name: str
    exact: bool
    ordered: bool
    send_s: int = 1

    @abstractmethod
    def configuration(self) -> str:
        """Its section of relay.toml."""

    @abstractmethod
    def held(self) -> list[Copy]:
        """Everything that it holds."""

    def disturb(self, chance: random.Random) -> None:
        """Break a connection, some way."""

    def recover(self) -> None:
        """End what would last."""


def section(name: str, **keys: Any) -> str:
    """A sink's section of relay.toml."""
    return f"[sinks.{name}]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in keys.items())


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {json.dumps(item)}" for key, item in value.items()) + " }"
    return json.dumps(value)


def _copy(payload: bytes | str) -> Copy:
    number, key = json.loads(payload)
    return Copy(number, key)


class RedisBroker(Broker):
    """Streams with and without order, or Sidekiq's queue; through a proxy that is slow, or cuts at random bytes."""

    exact = True

    def __init__(self, name: str, server: RedisServer, proxy: FaultProxy) -> None:
        self.name = name
        self.ordered = name == "keys"
        self._server = server
        self._proxy = proxy

    def configuration(self) -> str:
        url = self._proxy.url(self._server.url)
        if self.name == "jobs":
            return section("jobs", type="sidekiq", url=url, queue="jobs")
        order = "key" if self.ordered else "none"
        return section(self.name, type="redis-stream", url=url, stream=self.name, order=order)

    def held(self) -> list[Copy]:
        client = self._server.client()
        if self.name == "jobs":
            jobs: Any = client.lrange("queue:jobs", 0, -1)
            return [_copy(json.dumps(json.loads(job)["args"])) for job in reversed(jobs)]
        entries: Any = client.xrange(self.name)
        return [_copy(fields[b"payload"]) for _, fields in entries]

    def disturb(self, chance: random.Random) -> None:
        faults.disturb(self._proxy, chance)


class ClusterBroker(Broker):
    """A stream for each key, spread over a cluster's nodes, of which one after the other is broken or refuses."""

    name = "slots"
    exact = True
    ordered = True

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._refusing: FaultProxy | None = None

    def configuration(self) -> str:
        return section("slots", type="redis-stream", url=self._cluster.url, stream="slots:{key}", order="key", shards=8)

    def held(self) -> list[Copy]:
        found: list[Copy] = []
        for client in self._cluster.clients:
            for stream in client.scan_iter("slots:*"):
                entries: Any = client.xrange(stream)
                found += [_copy(fields[b"payload"]) for _, fields in entries]
        return found

    def disturb(self, chance: random.Random) -> None:
        self.recover()
        proxy = chance.choice(self._cluster.proxies)
        if chance.random() < 0.3:
            proxy.refuse()
            proxy.cut()
            self._refusing = proxy
        else:
            faults.disturb(proxy, chance)

    def recover(self) -> None:
        if self._refusing is not None:
            self._refusing.resume()
            self._refusing = None


class KafkaBroker(Broker):
    """A topic of 12 partitions; ordered, and exactly once where asked."""

    ordered = True

    def __init__(self, name: str, cluster: kafka.KafkaCluster) -> None:
        self.name = name
        self.exact = name == "kafka-once"
        # Whoever takes a dead sender's messages over ends its transactions first, one identity after the other.
        self.send_s = 3 if self.exact else 1
        self._cluster = cluster
        self._topic = cluster.new_topic(partitions=12)

    def configuration(self) -> str:
        return section(
            self.name, type="kafka", topic=self._topic, order="key", shards=16, exactly_once=self.exact,
            client=self._cluster.client, workers=2,
        )  # fmt: skip

    def held(self) -> list[Copy]:
        return [_copy(record.value or b"") for record in self._cluster.read(self._topic)]


class SqsBroker(Broker):
    """A FIFO queue: second copies within five minutes are dropped by the queue itself."""

    name = "sqs"
    ordered = True
    exact = True

    def __init__(self, server: elasticmq.ElasticMq) -> None:
        self._server = server
        self._queue = server.new_queue(fifo=True)

    def configuration(self) -> str:
        return section(
            "sqs", type="sqs", queue=self._queue, order="key", shards=8, batch_messages=50, client=self._server.client
        )

    def held(self) -> list[Copy]:
        return [_copy(message["Body"]) for message in self._server.take(self._queue)]


@contextmanager
def brokers(names: list[str]) -> Iterator[list[Broker]]:
    """Start what these sinks need."""
    with ExitStack() as stack:
        found: list[Broker] = []
        redis: tuple[RedisServer, FaultProxy] | None = None
        cluster: kafka.KafkaCluster | None = None
        for name in names:
            if name in ("stream", "jobs", "keys"):
                if redis is None:
                    server = stack.enter_context(run_redis(REDIS))
                    redis = server, stack.enter_context(FaultProxy.before(server.url))
                found.append(RedisBroker(name, *redis))
            elif name == "slots":
                found.append(ClusterBroker(stack.enter_context(run_cluster(REDIS))))
            elif name in ("kafka", "kafka-once"):
                cluster = cluster or stack.enter_context(kafka.new_cluster())
                found.append(KafkaBroker(name, cluster))
            else:
                found.append(SqsBroker(stack.enter_context(elasticmq.run_elasticmq())))
        yield found


ALL: tuple[str, ...] = ("stream", "jobs", "keys", "slots", "kafka", "kafka-once", "sqs")
