"""The suite over Kafka, with transactions and without, against a real broker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from sinks.base import Message, Sink, SinkConfig
from sinks.kafka.sink import KafkaOptions, KafkaSink
from sinks.template import Template
from sinks.testing import FencedSinkContract, Received, SinkContract
from tests.servers.kafka import KafkaCluster


class KafkaContract(SinkContract):
    @pytest.fixture(autouse=True)
    def _topic(self, kafka: KafkaCluster) -> None:
        self.kafka = kafka
        self.topic = kafka.new_topic(partitions=3)

    def make(self, *, ordered: bool = False) -> Sink:
        options = KafkaOptions(topic=Template("{header.topic:" + self.topic + "}"), exactly_once=self.fenced)
        client = self.kafka.proxied_client
        return KafkaSink(SinkConfig("orders", options, send_timeout=5, ordered=ordered, client=client))

    def received(self) -> Sequence[Received]:
        records = self.kafka.read(self.topic)
        return [
            Received(record.headers["message_id"].decode(), record.headers["kind"].decode(), record.value or b"")
            for record in records
        ]

    def unsendable(self, message: Message) -> Message:
        return message._replace(headers={"topic": "no such name"})

    @contextmanager
    def outage(self) -> Iterator[None]:
        proxy = self.kafka.brokers[0].proxy
        proxy.refuse()
        proxy.cut()
        yield
        proxy.resume()


class TestKafka(KafkaContract):
    pass


class TestKafkaExactlyOnce(KafkaContract, FencedSinkContract):
    pass
