"""One suite over every sink that needs nothing but PyPI wheels."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
import redis

from sinks import memory
from sinks.base import Message, Reject, Sink, SinkConfig, SinkUnavailable
from sinks.memory import MemoryOptions, MemorySink
from sinks.redis.sidekiq import SidekiqOptions, SidekiqSink
from sinks.redis.stream import RedisStreamOptions, RedisStreamSink
from sinks.template import Template
from sinks.testing import PAYLOADS, FencedSinkContract, Received, SinkContract
from tests.redis_sinks import entries, job_texts
from tests.servers.proxy import FaultProxy
from tests.servers.redis import every_redis


class TestMemory(SinkContract):
    @pytest.fixture(autouse=True)
    def _empty(self) -> Iterator[None]:
        memory.intercept("memory", self._hook)
        yield
        memory.forget("memory")

    def _hook(self, message: Message) -> Reject | None:
        return Reject("as asked") if message.headers.get("bad") else None

    def make(self, *, ordered: bool = False) -> Sink:
        return MemorySink(SinkConfig("memory", MemoryOptions(), ordered=ordered))

    def received(self) -> Sequence[Received]:
        return [Received(str(one.message_id), one.kind, one.data) for one in memory.delivered("memory")]

    def unsendable(self, message: Message) -> Message:
        return message._replace(headers={"bad": True})

    @contextmanager
    def outage(self) -> Iterator[None]:
        def refuse(message: Message) -> None:
            raise SinkUnavailable("as asked", unknown=False)

        memory.intercept("memory", refuse)
        yield
        memory.intercept("memory", self._hook)


class RedisContract(FencedSinkContract):
    @pytest.fixture(autouse=True)
    def _proxy(self, redis_url: str, redis_client: redis.Redis) -> Iterator[None]:
        self.client = redis_client
        with FaultProxy.before(redis_url) as self.proxy:
            self.url = self.proxy.url(redis_url)
            yield

    @contextmanager
    def outage(self) -> Iterator[None]:
        self.proxy.refuse()
        self.proxy.cut()
        yield
        self.proxy.resume()


@every_redis
class TestRedisStream(RedisContract):
    def make(self, *, ordered: bool = False) -> Sink:
        options = RedisStreamOptions(url=self.url, stream=Template("{header.stream:orders}"))
        return RedisStreamSink(SinkConfig("orders", options, send_timeout=5, ordered=ordered))

    def received(self) -> Sequence[Received]:
        return [
            Received(entry["message_id"].decode(), entry["kind"].decode(), entry["payload"])
            for entry in entries(self.client, "orders")
        ]

    def unsendable(self, message: Message) -> Message:
        return message._replace(headers={"stream": ["not", "a", "name"]})


@every_redis
class TestSidekiq(RedisContract):
    payloads = PAYLOADS[:-1]  # Ruby reads no JSON of two hundred levels
    takes_body = False

    def make(self, *, ordered: bool = False) -> Sink:
        options = SidekiqOptions(url=self.url)
        return SidekiqSink(SinkConfig("emails", options, send_timeout=5, ordered=ordered))

    def received(self) -> Sequence[Received]:
        return [self._parse(job) for job in job_texts(self.client)]

    def _parse(self, job: bytes) -> Received:
        # Not by a JSON parser: the arguments' text is to be compared.
        found = re.fullmatch(rb'{"class":"(.*?)",.*?"jid":"(.*?)",.*?"args":(.*)}', job, re.DOTALL)
        assert found
        return Received(found[2].decode(), found[1].decode(), found[3])

    def identity(self, message: Message) -> str:
        return message.message_id.hex[:24]

    def unsendable(self, message: Message) -> Message:
        return message._replace(headers={"sidekiq": "not an object"})
