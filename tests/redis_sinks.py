"""Sinks in Redis for tests, and what they left there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import redis

from sinks.base import Outcome, Sink, SinkConfig
from sinks.redis.sidekiq import SidekiqOptions, SidekiqSink
from sinks.redis.stream import RedisStreamOptions, RedisStreamSink
from sinks.template import Template

BY_HEADER = Template("{header.to:orders}")
"""Streams by header, so that a test can break one of them."""


@contextmanager
def streams(
    url: str,
    *,
    timeout: float = 5.0,
    ordered: bool = False,
    client: Mapping[str, Any] | None = None,
    **options: Any,
) -> Iterator[RedisStreamSink]:
    """An open sink for streams."""
    parsed = RedisStreamOptions(url=url, **{"stream": BY_HEADER, **options})
    sink = RedisStreamSink(SinkConfig("sink", parsed, timeout, ordered, client or {}))
    with _opened(sink):
        yield sink


@contextmanager
def sidekiq(url: str, *, timeout: float = 5.0, ordered: bool = False, **options: Any) -> Iterator[SidekiqSink]:
    """An open sink for Sidekiq."""
    sink = SidekiqSink(SinkConfig("sink", SidekiqOptions(url=url, **options), send_timeout=timeout, ordered=ordered))
    with _opened(sink):
        yield sink


@contextmanager
def _opened(sink: Sink) -> Iterator[None]:
    sink.open()
    try:
        yield
    finally:
        sink.close()


def names(outcomes: Sequence[Outcome]) -> list[str]:
    """The outcomes' classes, by name."""
    return [type(outcome).__name__ for outcome in outcomes]


def payloads(client: redis.Redis, stream: str = "orders") -> list[bytes]:
    """The payloads of a stream's entries, oldest first."""
    return [entry["payload"] for entry in entries(client, stream)]


def entries(client: redis.Redis, stream: str) -> list[dict[str, bytes]]:
    """The entries of a stream, oldest first: field name → value."""
    found: Any = client.xrange(stream)
    return [{name.decode(): value for name, value in fields.items()} for _, fields in found]


def job_texts(client: redis.Redis, queue: str = "default", prefix: str = "") -> list[bytes]:
    """The jobs of a Sidekiq queue as they lie there, in the order in which a worker takes them."""
    found: Any = client.lrange(f"{prefix}queue:{queue}", 0, -1)
    return list(reversed(found))


def jobs(client: redis.Redis, queue: str = "default", prefix: str = "") -> list[dict[str, Any]]:
    """The jobs of a Sidekiq queue, in the order in which a worker takes them."""
    return [json.loads(text) for text in job_texts(client, queue, prefix)]


def marks(client: redis.Redis) -> dict[str, str]:
    """The marks of claims: token in hex → what it says."""
    keys: Any = client.keys("outbox-relay:mark:*")
    found: Any = client.mget(keys) if keys else []
    return {key.decode().rpartition(":")[2]: mark.decode() for key, mark in zip(keys, found, strict=True)}
