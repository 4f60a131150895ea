"""Where messages go, and what is there in the end."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from tests.crash.brokers import Copy
from tests.model.stage import Stage, Wires

REDIS_HOST = "redis.model"
PATIENT = 1_000_000
"""Attempts of messages that nothing but a fault of the relay could make dead."""


class Destination(ABC):
    """One sink of a seed.

    `exact`: second copies are a fault. `may_die`: what it is told to refuse becomes dead.
    """

    exact = False
    may_die = False
    at_least: ClassVar[Mapping[str, Any]] = {}
    """Keys that it has in every relay, whatever that relay has for the others."""

    def __init__(self, name: str, keys: Mapping[str, Any]) -> None:
        self.name = name
        self.shards: int = keys.get("shards", 0)
        """0: unordered."""
        self.blocks = keys.get("after_dead") == "block"
        self._keys = keys

    @property
    def ordered(self) -> bool:
        return self.shards > 0

    def keys(self) -> dict[str, Any]:
        """Its keys, as all relays have them."""
        order = {"order": "key", "shards": self.shards} if self.ordered else {}
        return {**self._keys, **order, "max_attempts": 4 if self.may_die else PATIENT}

    @abstractmethod
    def held(self) -> Iterator[Copy]:
        """All copies; those of a key in the order in which they came."""


def copy_of(payload: bytes | str) -> Copy:
    number, key, *_ = json.loads(payload)
    return Copy(number, key)


class RedisDestination(Destination):
    """A stream or a queue of one server. Each relay has a way of its own there (`resolver`)."""

    exact = True

    def __init__(self, name: str, keys: Mapping[str, Any], stage: Stage, wires: Wires) -> None:
        super().__init__(name, {"url": f"redis://{REDIS_HOST}:6379/0", **keys})
        self._redis = stage.redis

    def held(self) -> Iterator[Copy]:
        with self._redis.server.client() as client:
            if self._keys["type"] == "sidekiq":
                jobs: Any = client.lrange(f"queue:{self._keys['queue']}", 0, -1)
                yield from (copy_of(json.dumps(json.loads(job)["args"])) for job in reversed(jobs))
            else:
                entries: Any = client.xrange(self._keys["stream"])
                yield from (copy_of(fields[b"payload"]) for _, fields in entries)


class LocalDestination(Destination):
    """Functions of `jobs.py`, which fail on demand."""

    may_die = True

    def __init__(self, name: str, keys: Mapping[str, Any], stage: Stage, wires: Wires) -> None:
        handlers = {"*": f"tests.model.jobs:{name}"}
        super().__init__(name, {"type": "local", "handlers": handlers, "timeout": "20s", **keys})
        self._file = wires.folder / f"{name}.jsonl"

    def held(self) -> Iterator[Copy]:
        if self._file.exists():
            # What was killed in the middle of a line did not do its work; lines are whole or absent.
            yield from map(copy_of, self._file.read_text().splitlines())


class SlotsDestination(Destination):
    """A stream for each key, spread over a cluster's nodes. All relays go there by the nodes' own proxies."""

    exact = True

    def __init__(self, name: str, keys: Mapping[str, Any], stage: Stage, wires: Wires) -> None:
        assert stage.slots
        self._cluster = stage.slots
        super().__init__(
            name, {"type": "redis-stream", "url": self._cluster.url, "stream": f"{name}:{{key:none}}", **keys}
        )

    def held(self) -> Iterator[Copy]:
        for client in self._cluster.clients:
            for stream in client.scan_iter(f"{self.name}:*"):
                entries: Any = client.xrange(stream)
                yield from (copy_of(fields[b"payload"]) for _, fields in entries)


class SentinelDestination(Destination):
    """A stream of a primary whose replica must confirm; sentinels say which one that is."""

    exact = True

    def __init__(self, name: str, keys: Mapping[str, Any], stage: Stage, wires: Wires) -> None:
        assert stage.sentinel
        self._sentinel = stage.sentinel
        there = {"url": self._sentinel.url, "stream": name, "wait_replicas": 1}
        super().__init__(name, {"type": "redis-stream", **there, **keys})

    def held(self) -> Iterator[Copy]:
        with self._sentinel.current().client() as client:
            entries: Any = client.xrange(self.name)
            yield from (copy_of(fields[b"payload"]) for _, fields in entries)


class KafkaDestination(Destination):
    """A topic of this seed alone."""

    # Whoever takes a dead sender's messages over ends its transactions first, one identity after the other.
    at_least: ClassVar[Mapping[str, Any]] = {"send_timeout": "3s", "lease": "9s"}

    def __init__(self, name: str, keys: Mapping[str, Any], stage: Stage, wires: Wires) -> None:
        assert stage.kafka
        self._cluster = stage.kafka
        self._topic = self._cluster.new_topic(partitions=6, replicas=min(3, len(self._cluster.brokers)))
        self.exact = "exactly_once" in keys
        super().__init__(name, {"type": "kafka", "topic": self._topic, "client": self._cluster.client, **keys})

    def held(self) -> Iterator[Copy]:
        return (copy_of(record.value or b"") for record in self._cluster.read(self._topic, timeout=60))


Make = Callable[[Stage, Wires], Destination]

BACKOFF = {"base": "100ms", "max": "1s"}


def _redis(name: str, **keys: Any) -> Make:
    return lambda stage, wires: RedisDestination(name, keys | {"backoff": BACKOFF}, stage, wires)


def _other(name: str, kind: Callable[[str, Mapping[str, Any], Stage, Wires], Destination], **keys: Any) -> Make:
    return lambda stage, wires: kind(name, keys | {"backoff": BACKOFF}, stage, wires)


def _local(name: str, **keys: Any) -> Make:
    return lambda stage, wires: LocalDestination(name, keys | {"backoff": BACKOFF}, stage, wires)


SINKS: Mapping[str, Make] = {
    "stream": _redis("stream", type="redis-stream", stream="stream"),
    "stream_keys": _redis("stream_keys", type="redis-stream", stream="stream_keys", shards=8),
    "stream_strict": _redis("stream_strict", type="redis-stream", stream="stream_strict", shards=3, strict=True),
    "jobs": _redis("jobs", type="sidekiq", queue="jobs"),
    "jobs_keys": _redis("jobs_keys", type="sidekiq", queue="jobs_keys", shards=64),
    "local_threads": _local("local_threads", concurrency=4),
    "local_processes": _local("local_processes", concurrency=2, executor="process"),
    "local_skip": _local("local_skip", concurrency=3, shards=8, after_dead="skip"),
    "local_block": _local("local_block", concurrency=3, shards=5, after_dead="block"),
    "slots": _other("slots", SlotsDestination),
    "slots_keys": _other("slots_keys", SlotsDestination, shards=8),
    "sentinel_keys": _other("sentinel_keys", SentinelDestination, shards=4),
    "kafka_keys": _other("kafka_keys", KafkaDestination, shards=8),
    "kafka_once": _other("kafka_once", KafkaDestination, shards=16, exactly_once=True),
}
"""By name."""
FROM_WHEELS = tuple(name for name in SINKS if not name.startswith("kafka"))
"""Those whose servers come with Python packages."""
