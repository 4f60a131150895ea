"""The fence: how a batch gets into Redis at most once, whatever dies on the way.

A batch is one call of one script, `fence.lua`, which keeps a small mark under the claim's token:

- asked again under the same token, it answers as the first time and pushes nothing;
- the marks of its messages' earlier claims say which of them are delivered already; an earlier claim without a mark
  is revoked, so that its sender, should it wake up, is refused;
- a refusal of the whole batch comes before anything is pushed; what fails for single messages is in the mark.

It holds as far as Redis keeps what it acknowledged. An answer speaks of its own call: where an earlier call for the
same batch stayed without one, a refusal of the next call does not tell what became of the first.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

import redis
from pydantic import Field

from sinks.base import DELIVERED, Batch, Message, Outcome, Sink, SinkConfig, SinkOptions, SinkUnavailable
from sinks.redis.connection import RedisConnection
from sinks.redis.plan import Plan, Push
from sinks.redis.script import Replicas, ask, wait_ms
from sinks.redis.sentinels import SentinelPrimary
from sinks.redis.server import (
    LARGEST_ARGUMENT,
    Server,
    eviction_policy,
    is_cluster_node,
    largest_argument,
    warn_of_eviction,
)
from sinks.redis.url import Place, RedisUrl, parse


class RedisOptions(SinkOptions):
    """Configuration keys of every sink that writes to Redis."""

    url: RedisUrl
    """One server, Sentinel or a cluster: `redis_url.py` has the forms."""
    wait_replicas: int | None = Field(default=None, ge=0)
    """How many replicas must confirm a batch before it counts as delivered (`WAIT`). None: each one that
    sentinels or the cluster could promote; with one server, whose replicas nobody knows, none."""


class Fence(Protocol):
    """What pushes batches."""

    @property
    def largest_argument(self) -> int:
        """Bytes; as the server said when it was opened."""

    def open(self) -> None: ...

    def push(self, batch: Batch, plan: Plan) -> dict[int, Outcome]:
        """The outcomes of the messages that are not delivered, by id. Raises as `Sink.send` does."""

    def close(self) -> None: ...


class Primary(Protocol):
    """The server that batches go to."""

    @property
    def connection(self) -> RedisConnection:
        """To the primary as it was found last."""

    def find(self) -> int:
        """How many replicas must confirm a batch. Raises `SinkUnavailable` where nobody knows the primary."""

    def confirm(self, replicas: int) -> None:
        """Raises `SinkUnavailable` where so many confirmations do not suffice any more."""

    def drop(self) -> None: ...


class ServerFence:
    """The whole batch is one call to one server.

    Args:
        wait_ms: how long to wait for its replicas.
        cluster_refusal: what is said of a node of a cluster.
    """

    def __init__(self, primary: Primary, wait_ms: int, cluster_refusal: str) -> None:
        self.largest_argument = LARGEST_ARGUMENT
        self.primary = primary
        self._wait_ms = wait_ms
        self._cluster_refusal = cluster_refusal

    def open(self) -> None:
        self.primary.find()
        self.primary.connection.open()
        client = redis.Redis(connection_pool=self.primary.connection.pool)
        if is_cluster_node(client):
            raise SinkUnavailable(self._cluster_refusal, unknown=False)
        warn_of_eviction(eviction_policy(client))
        self.largest_argument = largest_argument(client)

    def push(self, batch: Batch, plan: Plan) -> dict[int, Outcome]:
        try:
            count = self.primary.find()
            replicas = Replicas(count, self._wait_ms) if count else None
            call = self.primary.connection.call
            failures = ask(call, batch, plan.whole(), settled=batch.settled, replicas=replicas)
            self.primary.confirm(count)
        except SinkUnavailable:
            self.primary.drop()
            raise
        return {message_id: plan.outcome(message_id, error) for message_id, error in failures.items()}

    def close(self) -> None:
        self.primary.drop()


class RedisSink(Sink):
    """Everything about a sink in Redis but what is pushed."""

    Options: ClassVar[type[SinkOptions]] = RedisOptions
    fenced = True
    cluster_refusal: ClassVar[str] = "a node of a Redis Cluster: its URL begins with redis+cluster://"

    def __init__(self, config: SinkConfig) -> None:
        """
        Raises:
            ValueError: redis-py does not know an option of `client`.
        """
        super().__init__(config)
        options: RedisOptions = config.options
        self.place = place = parse(options.url)
        self.fence: Fence = self._fence(place, config, options.wait_replicas)

    def _fence(self, place: Place, config: SinkConfig, replicas: int | None) -> Fence:
        if place.kind == "cluster":
            return self.cluster_fence(place)
        primary = SentinelPrimary if place.kind == "sentinel" else Server
        return ServerFence(primary(place, config, replicas), wait_ms(config), self.cluster_refusal)

    def cluster_fence(self, place: Place) -> Fence:
        """How it pushes in a cluster.

        Raises:
            ValueError: it cannot.
        """
        raise ValueError(f"one server or sentinels, not {self.cluster_refusal}")

    @abstractmethod
    def pusher(self, batch: Batch) -> Callable[[Message], Push]:
        """What makes the pushes of this batch; it raises `Unsendable` or `TemplateError` for a message to reject."""

    def open(self) -> None:
        self.fence.open()

    def ask(self) -> bool:
        self.fence.close()
        self.fence.open()
        return True

    def close(self) -> None:
        self.fence.close()

    def send(self, batch: Batch) -> Sequence[Outcome]:
        if not batch.messages:
            return []
        plan = Plan(batch.messages, self.pusher(batch), ordered=self.config.ordered, withdrawn=batch.withdrawn)
        outcomes = self.fence.push(batch, plan)
        if not outcomes:
            return [DELIVERED] * len(batch.messages)
        return [outcomes.get(message.id, DELIVERED) for message in batch.messages]
