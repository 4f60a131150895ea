"""What a consumer finds in Kafka, and where."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from sinks.base import DELIVERED, Reject, Retry
from sinks.testing import batch, message
from sinks.wire import rfc3339
from tests.kafka_sinks import assert_in_order, ids, opened
from tests.servers import kafka as server
from tests.servers.kafka import KafkaCluster, java_source, mock_cluster

KEYS = ["42", "", "a", "order-1", "zoë 😀", "k" * 1000, *(f"customer-{number}" for number in range(100))]


def test_record_holds_the_message(kafka: KafkaCluster) -> None:
    topic = kafka.new_topic()
    forged = dict.fromkeys(("kind", "message_id", "created_at"), "forged")
    headers = {"traceparent": "00-ab-cd-01", "n": 1, "deep": {"é": [None]}, **forged}
    one = message(1, kind="order.created", key="42", payload=b'{"total": 9.90}', headers=headers)
    with opened(kafka.client, topic) as sink:
        assert sink.send(batch([one])) == [DELIVERED]
    (record,) = kafka.read(topic)
    assert (record.key, record.value) == (b"42", b'{"total": 9.90}')
    assert record.headers == {
        "message_id": str(one.message_id).encode(),
        "kind": b"order.created",
        "created_at": rfc3339(one.created_us).encode(),
        "traceparent": b"00-ab-cd-01",
        "n": b"1",
        "deep": '{"é":[null]}'.encode(),
    }


@pytest.mark.parametrize("envelope", ["raw", "cloudevents", "cloudevents-structured", "debezium"])
@pytest.mark.parametrize("exactly_once", [False, True])
def test_timestamp_is_the_time_of_sending_unless_asked_otherwise(
    kafka: KafkaCluster, envelope: str, exactly_once: bool
) -> None:
    """Topics delete by it: a message that waited longer than they keep records would be deleted as it arrives.

    In the same way it would be refused where a topic takes no old records, and die of an outage that was long enough.
    """
    topic = kafka.new_topic(message_timestamp_before_max_ms=3_600_000, retention_ms=3_600_000)
    one = message(1, key="k", headers={"aggregatetype": "order"})
    claimed_us = time.time_ns() // 1000
    common = {"envelope": envelope, "exactly_once": exactly_once}
    with opened(kafka.client, topic, **common) as sink:
        assert sink.send(batch([one], token=sink.new_token(), claimed_us=claimed_us)) == [DELIVERED]
    with opened(kafka.client, topic, timestamp="written", **common) as sink:
        (refused,) = sink.send(batch([one], token=sink.new_token(), claimed_us=claimed_us))
        recent = message(2, key="k", headers={"aggregatetype": "order"}, created_us=claimed_us - 60_000_000)
        assert sink.send(batch([recent], token=sink.new_token(), claimed_us=claimed_us)) == [DELIVERED]
    assert isinstance(refused, Retry)
    times = [record.timestamp_ms for record in kafka.read(topic)]
    assert times == [claimed_us // 1000, claimed_us // 1000 - 60_000]


@pytest.mark.parametrize("envelope", ["raw", "cloudevents", "cloudevents-structured", "debezium"])
def test_tombstone_makes_a_compacted_topic_forget_a_key(kafka: KafkaCluster, envelope: str) -> None:
    """In the same way a header could ask for one that deletes nothing, or hides a payload: such a message is dead."""
    topic = kafka.new_topic(cleanup_policy="compact")
    asked = {"kafka.tombstone": True, "aggregatetype": "order", "n": 1}
    gone = message(1, key="42", payload=None, body=b"", headers=asked)
    wrong = [
        gone._replace(key=None),
        gone._replace(body=b"data"),
        gone._replace(body=None, payload=b"null"),
        gone._replace(headers={"kafka.tombstone": "yes"}),
    ]
    not_asked = message(2, key="43", payload=None, body=b"x", headers={"kafka.tombstone": False})
    with opened(kafka.client, topic, envelope=envelope) as sink:
        outcomes = sink.send(batch([gone, *wrong, not_asked]))
    assert [outcomes[0], outcomes[-1]] == [DELIVERED] * 2
    for outcome in outcomes[1:-1]:
        assert isinstance(outcome, Reject)
        assert "kafka.tombstone" in outcome.reason
    tombstone, other = kafka.read(topic)
    assert (tombstone.key, tombstone.value) == (b"42", None)
    assert other.value is not None
    id_header = {"raw": "message_id", "debezium": "id"}.get(envelope, "ce_id")
    assert tombstone.headers[id_header].decode() == str(gone.message_id)
    assert not {"kafka.tombstone", "content-type", "ce_datacontenttype"} & tombstone.headers.keys()
    assert "kafka.tombstone" not in other.headers


def test_no_key_and_an_empty_one_are_told_apart(kafka: KafkaCluster) -> None:
    topic = kafka.new_topic()
    with opened(kafka.client, topic) as sink:
        sink.send(batch([message(1, payload=b"null", key=None), message(2, payload=None, body=b"", key="")]))
    assert [(record.key, record.value) for record in kafka.read(topic)] == [(None, b"null"), (b"", b"")]


def test_topic_comes_from_the_template_and_is_checked_first(kafka: KafkaCluster) -> None:
    topic = kafka.new_topic()
    names = [topic, "", "a b", ".", "..", "x" * 250, "é", topic]
    messages = [message(number, headers={"topic": name}) for number, name in enumerate(names)]
    with opened(kafka.client) as sink:
        outcomes = sink.send(batch(messages))
    assert [type(outcome) for outcome in outcomes[1:-1]] == [Reject] * 6
    assert ids(kafka.read(topic)) == [str(messages[0].message_id), str(messages[-1].message_id)]


def test_a_key_goes_where_a_java_producer_puts_it(kafka: KafkaCluster) -> None:
    ours, theirs = kafka.new_topic(partitions=12), kafka.new_topic(partitions=12)
    with opened(kafka.client, ours) as sink:
        sink.send(batch([message(number, key=key) for number, key in enumerate(KEYS)]))
    java = java_source(Path(server.__file__).with_name("JavaProducer.java"), kafka.bootstrap, theirs)
    lines = "".join(f"{key.encode().hex()}\n" for key in KEYS)
    done = subprocess.run(java, input=lines, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    placed = {record.key: record.partition for record in kafka.read(ours)}
    assert [placed[key.encode()] for key in KEYS] == [int(line) for line in done.stdout.splitlines()]
    assert len(set(placed.values())) == 12


@pytest.mark.parametrize("exactly_once", [False, True])
def test_keys_keep_their_order_over_twelve_partitions(kafka: KafkaCluster, exactly_once: bool) -> None:
    topic = kafka.new_topic(partitions=12)
    messages = [message(number, key=f"key-{number % 100}") for number in range(3000)]
    with opened(kafka.client, topic, ordered=True, exactly_once=exactly_once) as sink:
        for start in range(0, 3000, 1000):
            part = batch(messages[start : start + 1000], token=sink.new_token())
            assert set(sink.send(part)) == {DELIVERED}
    records = kafka.read(topic)
    assert len(records) == 3000
    assert len({record.partition for record in records}) == 12
    assert_in_order(records, messages)


def test_librdkafka_s_mock_brokers_will_do_for_a_demonstration() -> None:
    with mock_cluster() as bootstrap, opened({"bootstrap.servers": bootstrap}, ordered=True) as sink:
        messages = [message(number, key="k", headers={"topic": f"t-{number % 3}"}) for number in range(30)]
        assert sink.send(batch(messages)) == [DELIVERED] * 30
        assert len(KafkaCluster([], bootstrap).read("t-0", "t-1", "t-2")) == 30
