"""CloudEvents as a consumer finds them in the brokers, read by the specification's own Python SDK."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis
from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka
from cloudevents.core.formats.json import JSONFormat

from sinks.base import DELIVERED, Message, Reject, SinkConfig
from sinks.kafka.sink import KafkaOptions, KafkaSink
from sinks.testing import CLAIMED_US, batch, message
from tests.redis_sinks import entries, streams
from tests.servers.elasticmq import ElasticMq
from tests.servers.kafka import KafkaCluster, Record
from tests.sqs_sinks import opened, send

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PAYLOAD = '{"b":1,"a":1.0,"a":2,"n":1234567890123456789,"t":"zoë 😀"}'
HEADERS = {"traceparent": TRACEPARENT, "tenant": "t-1", "n": 3, "x-request": "é", "relay.topic": "elsewhere"}
ONE = message(1, kind="order.created", key="42", payload=PAYLOAD.encode(), headers=HEADERS)
BYTES = message(
    2, kind="order.created", payload=None, body=b"\xff\xfe\x00", headers={"content-type": "application/avro"}
)
UNFIT = message(3, kind="order\ncreated", key="43")


def check(event: BaseCloudEvent, one: Message, source: str) -> None:
    assert (event.get_specversion(), event.get_id(), event.get_type()) == ("1.0", str(one.message_id), one.kind)
    assert event.get_source() == source
    time = event.get_time()
    assert time is not None
    assert round(time.timestamp() * 1_000_000) == one.created_us
    if one.payload is None:
        assert (event.get_data(), event.get_datacontenttype()) == (b"\xff\xfe\x00", "application/avro")
        return
    assert (event.get_data(), event.get_datacontenttype()) == (json.loads(PAYLOAD), "application/json")
    assert event.get_extension("partitionkey") == "42"
    assert (event.get_extension("traceparent"), event.get_extension("tenant")) == (TRACEPARENT, "t-1")
    assert str(event.get_extension("n")) == "3"


def by_sdk(record: Record) -> BaseCloudEvent:
    return from_kafka(KafkaMessage(record.headers, record.key, record.value or b""), JSONFormat())


@pytest.mark.full
@pytest.mark.parametrize("envelope", ["cloudevents", "cloudevents-structured"])
def test_kafka(kafka: KafkaCluster, envelope: str) -> None:
    topic = kafka.new_topic()
    options = KafkaOptions.model_validate({"topic": topic, "envelope": envelope, "source": "https://example.com/shop"})
    sink = KafkaSink(SinkConfig("orders", options, client=kafka.client))
    sink.open()
    try:
        first, refused, second = sink.send(batch([ONE, UNFIT, BYTES]))
    finally:
        sink.close()
    assert (first, second) == (DELIVERED, DELIVERED)
    assert isinstance(refused, Reject)
    assert "U+000A" in refused.reason
    text, binary = kafka.read(topic)
    check(by_sdk(text), ONE, "https://example.com/shop")
    check(by_sdk(binary), BYTES, "https://example.com/shop")
    assert (text.key, binary.key) == (b"42", None)
    assert text.timestamp_ms == CLAIMED_US // 1000  # when it was written is its `time`
    # What is no attribute travels beside the event, and so does the trace context.
    assert (text.headers["x-request"].decode(), text.headers["traceparent"].decode()) == ("é", TRACEPARENT)
    if envelope == "cloudevents":
        assert text.value == PAYLOAD.encode()
    else:
        assert text.headers["content-type"] == b"application/cloudevents+json; charset=UTF-8"
        assert PAYLOAD.encode() in (text.value or b"")


def test_redis_streams(redis_url: str, redis_client: redis.Redis) -> None:
    with streams(redis_url, envelope="cloudevents-structured") as sink:
        first, refused, second = sink.send(batch([ONE, UNFIT, BYTES]))
    assert (first, second) == (DELIVERED, DELIVERED)
    assert isinstance(refused, Reject)
    text, binary = entries(redis_client, "orders")
    check(JSONFormat().read(None, text["payload"]), ONE, "urn:outbox-relay:sink")
    check(JSONFormat().read(None, binary["payload"]), BYTES, "urn:outbox-relay:sink")
    assert PAYLOAD.encode() in text["payload"]
    assert text["message_id"] == str(ONE.message_id).encode()
    assert {name: value.decode() for name, value in text.items() if name.startswith("header:")} == {
        "header:content-type": "application/cloudevents+json; charset=UTF-8",
        "header:traceparent": TRACEPARENT,
        "header:x-request": "é",
        "header:relay.topic": "elsewhere",
    }


@pytest.mark.full
def test_sqs(elasticmq: ElasticMq) -> None:
    queue = elasticmq.new_queue()
    with opened(elasticmq.client, queue=queue, envelope="cloudevents-structured") as sink:
        first, refused, second = send(sink, [ONE, UNFIT, BYTES])
    assert (first, second) == (DELIVERED, DELIVERED)
    assert isinstance(refused, Reject)
    received: dict[str, Any] = {
        each["MessageAttributes"]["message_id"]["StringValue"]: each for each in elasticmq.take(queue)
    }
    assert received.keys() == {str(ONE.message_id), str(BYTES.message_id)}
    for one in (ONE, BYTES):
        check(JSONFormat().read(None, received[str(one.message_id)]["Body"]), one, "urn:outbox-relay:a-sink")
    assert PAYLOAD in received[str(ONE.message_id)]["Body"]
    attributes = received[str(ONE.message_id)]["MessageAttributes"]
    assert attributes["content-type"]["StringValue"] == "application/cloudevents+json; charset=UTF-8"
    assert attributes["x-request"]["StringValue"] == "é"
