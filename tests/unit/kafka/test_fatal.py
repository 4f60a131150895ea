"""A producer that ends with a fatal error is replaced, and only what it did not get through is sent again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from sinks.base import DELIVERED, Hold, Message, SinkConfig, SinkUnavailable
from sinks.kafka import client as kafka_client
from sinks.kafka.sink import KafkaOptions, KafkaSink
from sinks.testing import batch, message

FATAL = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "sequence numbers disagree", fatal=True)


class Topic:
    error = None


class Metadata:
    def __init__(self, topic: str) -> None:
        self.topics = {topic: Topic()}


class StubProducer:
    """Reports success up to a point, then a fatal error, and refuses all that follows."""

    made: list[StubProducer]
    good_reports: list[int]
    """Of each producer in turn."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.good = self.good_reports.pop(0) if self.good_reports else 10**9
        self.reported = 0
        self.fatal = False
        self.taken: list[str] = []
        self.waiting: list[tuple[str, Callable[[Any, Any], None]]] = []
        self.purged = False
        self.made.append(self)

    def cluster_id(self, timeout: float) -> str:
        return "cluster"

    def list_topics(self, topic: str, timeout: float) -> Metadata:
        return Metadata(topic)

    def produce(
        self, topic: str, value: bytes, key: bytes, partition: int, callback: Any, _: None, time: int, headers: Any
    ) -> None:
        if self.fatal:
            raise KafkaException(KafkaError(KafkaError._FATAL))
        self.waiting.append((dict(headers)["message_id"], callback))

    def flush(self, timeout: float) -> int:
        while self.waiting and not self.fatal:
            name, callback = self.waiting.pop(0)
            if self.reported == self.good:
                self.fatal = True
                callback(FATAL, None)
                raise KafkaException(FATAL)
            self.reported += 1
            self.taken.append(name)
            callback(None, None)
        return len(self.waiting)

    def poll(self, timeout: float) -> int:
        return 0

    def purge(self) -> None:
        self.purged = True

    def __len__(self) -> int:
        return len(self.waiting)


@pytest.fixture
def sink(monkeypatch: pytest.MonkeyPatch) -> KafkaSink:
    monkeypatch.setattr(kafka_client, "Producer", StubProducer)
    monkeypatch.setattr(kafka_client, "STRAGGLERS_S", 0.05)
    monkeypatch.setattr(StubProducer, "made", [], raising=False)
    monkeypatch.setattr(StubProducer, "good_reports", [], raising=False)
    client = {"bootstrap.servers": "127.0.0.1:1"}
    return KafkaSink(SinkConfig("orders", KafkaOptions(), send_timeout=1, ordered=True, client=client))


def messages() -> list[Message]:
    return [message(number, key=f"key-{number % 7}") for number in range(100)]


def test_only_what_is_not_acknowledged_is_sent_again(sink: KafkaSink) -> None:
    StubProducer.good_reports[:] = [29]
    sent = messages()
    sink.open()
    assert sink.send(batch(sent)) == [DELIVERED] * 100
    first, second = StubProducer.made
    assert first.purged
    assert first.taken + second.taken == [str(one.message_id) for one in sent]
    assert len(first.taken) == 29
    assert sink.clients_replaced == 1


def test_a_producer_that_was_fatal_before_the_send_is_replaced_too(sink: KafkaSink) -> None:
    sink.open()
    StubProducer.made[0].fatal = True
    assert sink.send(batch(messages())) == [DELIVERED] * 100
    assert len(StubProducer.made[1].taken) == 100
    assert sink.clients_replaced == 1


def test_one_fatal_producer_after_the_other_leaves_the_rest_to_the_next_send(sink: KafkaSink) -> None:
    StubProducer.good_reports[:] = [10, 10, 10, 10]
    outcomes = sink.send(batch(messages()))
    assert outcomes[:40] == [DELIVERED] * 40
    assert {type(outcome) for outcome in outcomes[40:]} == {Hold}
    assert sink.send(batch(messages()[40:])) == [DELIVERED] * 60
    assert sink.clients_replaced == 4


def test_nothing_acknowledged_at_all_is_unknown(sink: KafkaSink) -> None:
    StubProducer.good_reports[:] = [0] * 10
    with pytest.raises(SinkUnavailable, match="sequence numbers disagree") as raised:
        sink.send(batch(messages()))
    assert raised.value.unknown


def test_not_allowed_to_write_is_no_reason_to_try_again(sink: KafkaSink, monkeypatch: pytest.MonkeyPatch) -> None:
    StubProducer.good_reports[:] = [0] * 10
    denied = KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED, fatal=True)
    monkeypatch.setitem(globals(), "FATAL", denied)
    outcomes = sink.send(batch(messages()))
    assert {type(outcome) for outcome in outcomes} == {Hold}
    assert len(StubProducer.made) == 1
