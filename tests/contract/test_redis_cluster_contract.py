"""The suite over streams in a Redis Cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from sinks.base import Message, Sink, SinkConfig
from sinks.redis.stream import RedisStreamOptions, RedisStreamSink
from sinks.template import Template
from sinks.testing import FencedSinkContract, Received
from tests.redis_clusters import Cluster, run_cluster
from tests.redis_sinks import entries


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with run_cluster() as cluster:
        yield cluster


class TestRedisCluster(FencedSinkContract):
    """Each message's key decides on which of three nodes its stream is."""

    @pytest.fixture(autouse=True)
    def _cluster(self, cluster: Cluster) -> None:
        cluster.clear()
        self.cluster = cluster

    def make(self, *, ordered: bool = False) -> Sink:
        options = RedisStreamOptions(url=self.cluster.url, stream=Template("{key:none}"))
        return RedisStreamSink(SinkConfig("orders", options, send_timeout=5, ordered=ordered))

    def received(self) -> Sequence[Received]:
        return [
            Received(entry["message_id"].decode(), entry["kind"].decode(), entry["payload"])
            for client in self.cluster.clients
            for stream in client.scan_iter(_type="stream")
            for entry in entries(client, stream.decode())
        ]

    def unsendable(self, message: Message) -> Message:
        return message._replace(headers={str(number): 1 for number in range(1001)})

    @contextmanager
    def outage(self) -> Iterator[None]:
        for proxy in self.cluster.proxies:
            proxy.refuse()
            proxy.cut()
        yield
        for proxy in self.cluster.proxies:
            proxy.resume()
