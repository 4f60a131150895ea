"""What a sink says that it sends to: the same for the same place, another for another, and never a secret."""

from __future__ import annotations

from typing import Any

from sinks.base import Sink, SinkConfig
from sinks.kafka.sink import KafkaSink
from sinks.local.sink import LocalSink
from sinks.memory import MemorySink
from sinks.redis.sidekiq import SidekiqSink
from sinks.redis.stream import RedisStreamSink
from sinks.sqs.sink import SqsSink

BROKERS = {"bootstrap.servers": "one:9092,two:9092"}


def says(kind: type[Sink], client: dict[str, Any] | None = None, **options: Any) -> str:
    sink = kind(SinkConfig("orders", kind.Options.model_validate(options), client=client or {}))
    try:
        return sink.fingerprint()
    finally:
        sink.close()


def stream(url: str, **options: Any) -> str:
    return says(RedisStreamSink, url=url, **options)


def test_another_destination_is_told_apart() -> None:
    found = [
        stream("redis://a/0"),
        stream("redis://b/0"),
        stream("redis://a/1"),
        stream("redis://a/0", stream="other"),
        stream("unix:///run/redis.sock"),
        stream("redis+sentinel://a/x"),
        stream("redis+sentinel://a/y"),
        stream("redis+cluster://a"),
        says(SidekiqSink, url="redis://a/0"),
        says(SidekiqSink, url="redis://a/0", queue="other"),
        says(SidekiqSink, url="redis://a/0", namespace="x"),
        says(KafkaSink, BROKERS),
        says(KafkaSink, BROKERS, topic="other"),
        says(KafkaSink, BROKERS, exactly_once=True),
        says(KafkaSink, {"bootstrap.servers": "three:9092"}),
        says(SqsSink, queue="a", region="eu-west-1"),
        says(SqsSink, queue="a", region="eu-west-2"),
        says(SqsSink, queue="b", region="eu-west-1"),
        says(LocalSink, handlers={"a": "one:f"}),
        says(LocalSink, handlers={"a": "two:f"}),
        says(MemorySink),
    ]
    assert len(set(found)) == len(found)


def test_the_same_destination_is_the_same_and_no_secret_is_told() -> None:
    by_login = {"endpoint_url": "http://user:hidden@a:1"}
    pairs = [
        (stream("redis://a"), stream("redis://:hidden@a:6379/0?client_name=hidden")),
        (stream("redis+cluster://a,b"), stream("redis+cluster://u:hidden@b:6379,a/0", wait_replicas=1)),
        (says(KafkaSink, BROKERS), says(KafkaSink, {"bootstrap.servers": "two:9092, one:9092", "linger.ms": 1})),
        (
            says(SqsSink, {"endpoint_url": "http://a:1"}, queue="a", region="r"),
            says(SqsSink, by_login, queue="a", region="r"),
        ),
    ]
    for one, other in pairs:
        assert one == other
        assert "hidden" not in one
