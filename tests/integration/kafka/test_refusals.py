"""What Kafka does not take, and whom that concerns."""

from __future__ import annotations

import os
import time

import pytest
from confluent_kafka.admin import AclOperation

from sinks.base import DELIVERED, Hold, Message, Reject, Retry, SinkUnavailable
from sinks.testing import batch, message
from tests.kafka_sinks import ids, opened
from tests.servers.kafka import KafkaCluster, new_name


def to(topic: str, number: int, **changes: object) -> Message:
    return message(number, headers={"topic": topic}, **changes)


@pytest.mark.parametrize("exactly_once", [False, True])
def test_too_large_is_dead_at_once_and_alone(kafka: KafkaCluster, exactly_once: bool) -> None:
    topic = kafka.new_topic(partitions=1, max_message_bytes=100_000)
    messages = [message(number) for number in range(1, 21)]
    messages[6] = message(7, payload=None, body=os.urandom(150_000))  # the broker refuses it
    messages[11] = message(12, payload=None, body=os.urandom(2_000_000))  # librdkafka refuses it
    messages[14] = message(15, payload=None, body=b"0" * 150_000)  # small once it is compressed
    with opened(kafka.client, topic, exactly_once=exactly_once) as sink:
        outcomes = sink.send(batch(messages, token=sink.new_token()))
        again = sink.send(batch([message(21)], token=sink.new_token()))
    broker, client = outcomes[6], outcomes[11]
    assert isinstance(broker, Reject)
    assert isinstance(client, Reject)
    assert "150" in broker.reason
    assert "takes 100000 (max.message.bytes)" in broker.reason
    assert "2000" in client.reason
    assert "takes 1000000 (message.max.bytes)" in client.reason
    assert [outcome for number, outcome in enumerate(outcomes) if number not in {6, 11}] == [DELIVERED] * 18
    assert again == [DELIVERED]
    records = kafka.read(topic)
    assert len(records) == len(set(ids(records))) == 19


def test_batches_that_a_topic_refuses_are_made_smaller(kafka: KafkaCluster) -> None:
    topic = kafka.new_topic(partitions=1, max_message_bytes=20_000)
    messages = [message(number, payload=None, body=os.urandom(3_000)) for number in range(100)]
    with opened(kafka.client, topic) as sink:
        assert set(sink.send(batch(messages))) == {DELIVERED}
        assert sink.options["batch.size"] == 20_000
        assert set(sink.send(batch(messages))) == {DELIVERED}
        began = time.monotonic()
        assert set(sink.send(batch(messages))) == {DELIVERED}
        assert time.monotonic() - began < 2
    assert len(kafka.read(topic)) == 300


def test_missing_topic_stops_no_other_and_recovers(kafka: KafkaCluster) -> None:
    topic, absent = kafka.new_topic(), new_name()
    mixed = [to(topic if number % 2 else absent, number) for number in range(1, 41)]
    with opened(kafka.client) as sink:
        began = time.monotonic()
        outcomes = sink.send(batch(mixed))
        assert time.monotonic() - began < 6
        assert outcomes[::2] == [DELIVERED] * 20
        assert {type(one) for one in outcomes[1::2]} == {Hold}
        assert {one.destination for one in outcomes[1::2] if isinstance(one, Hold)} == {absent}
        assert "does not exist" in str(outcomes[1])
        began = time.monotonic()
        assert sink.send(batch(mixed))[0] == DELIVERED
        assert time.monotonic() - began < 2
        kafka.new_topic(absent)
        assert set(sink.send(batch(mixed[1::2]))) == {DELIVERED}
    assert len(kafka.read(absent)) == 20


@pytest.mark.parametrize("exactly_once", [False, True])
def test_topics_that_are_missing_delay_nothing_else(kafka: KafkaCluster, exactly_once: bool) -> None:
    """Each of them is met for the first time: a single one, a few, and as many as a header may make of the messages.

    In the same way they would delay the others each time that their messages are tried again.
    """
    topic, name = kafka.new_topic(), new_name()
    with opened(kafka.client, exactly_once=exactly_once) as sink:
        sink.send(batch([to(topic, 0)], token=sink.new_token()))
        for missing, bound in ((1, 0.5), (10, 0.5), (1000, 1.0), (1000, 1.0)):
            mixed = [to(topic, number) for number in range(20)]
            mixed += [to(f"{name}-{missing}-{number}", number) for number in range(missing)]
            began = time.monotonic()
            outcomes = sink.send(batch(mixed, token=sink.new_token()))
            assert time.monotonic() - began < bound
            assert outcomes[:20] == [DELIVERED] * 20
            assert {type(outcome) for outcome in outcomes[20:]} == {Hold}
        kafka.new_topic(f"{name}-1000-999")
        again = batch([to(f"{name}-1000-{number}", number) for number in range(1000)], token=sink.new_token())
        assert sink.send(again)[999] == DELIVERED


def test_deleted_topic_is_held_and_recovers(kafka: KafkaCluster) -> None:
    topic, other = kafka.new_topic(), kafka.new_topic()
    with opened(kafka.client) as sink:
        sink.send(batch([to(topic, 1)]))
        kafka.delete_topic(topic)
        held, delivered = sink.send(batch([to(topic, 2), to(other, 3)]))
        assert isinstance(held, Hold)
        assert held.destination == topic
        assert delivered == DELIVERED
        kafka.new_topic(topic)
        assert sink.send(batch([to(topic, 2)])) == [DELIVERED]


@pytest.mark.parametrize("may_see_it", [False, True])
def test_denied_topic_stops_no_other_and_recovers(kafka: KafkaCluster, may_see_it: bool) -> None:
    topic, secret = kafka.new_topic(), kafka.new_topic()
    kafka.allow(topic, AclOperation.WRITE)
    if may_see_it:
        kafka.allow(secret, AclOperation.DESCRIBE)
    mixed = [to(topic if number % 2 else secret, number) for number in range(1, 41)]
    with opened(kafka.client_as("relay")) as sink:
        for _ in range(2):
            began = time.monotonic()
            outcomes = sink.send(batch(mixed))
            assert time.monotonic() - began < 6
            assert outcomes[::2] == [DELIVERED] * 20
            assert {one.destination for one in outcomes[1::2] if isinstance(one, Hold)} == {secret}
            assert "not authorized" in str(outcomes[1])
        kafka.allow(secret, AclOperation.WRITE)
        assert set(sink.send(batch(mixed[1::2]))) == {DELIVERED}
    assert len(kafka.read(secret)) == 20


def test_limit_that_kafka_does_not_tell(kafka: KafkaCluster) -> None:
    topic = kafka.new_topic(max_message_bytes=50_000)
    kafka.allow(topic, AclOperation.WRITE)
    with opened(kafka.client_as("relay"), topic) as sink:
        (outcome,) = sink.send(batch([message(1, payload=None, body=os.urandom(90_000))]))
    assert isinstance(outcome, Reject)
    assert "takes less" in outcome.reason


def test_wrong_password_is_said_soon_and_without_it(kafka: KafkaCluster) -> None:
    client = {**kafka.client_as("relay"), "sasl.password": "not-the-password"}
    began = time.monotonic()
    with pytest.raises(SinkUnavailable, match=r"[Aa]uthentication failed") as raised, opened(client, "t"):
        pass
    assert time.monotonic() - began < 6
    assert not raised.value.unknown
    assert "not-the-password" not in raised.value.reason


def test_no_right_to_write_anywhere_is_the_whole_sink_s_trouble(kafka: KafkaCluster) -> None:
    topic = kafka.new_topic()
    kafka.allow(topic, AclOperation.DESCRIBE, user="stranger")
    with opened(kafka.client_as("stranger"), topic) as sink:
        (outcome,) = sink.send(batch([message(1)]))
    assert isinstance(outcome, Hold)
    assert outcome.destination is None
    assert "not authorized" in outcome.reason


@pytest.mark.parametrize("exactly_once", [False, True])
def test_message_without_a_key_for_a_compacted_topic_is_dead_and_alone(kafka: KafkaCluster, exactly_once: bool) -> None:
    compacted = kafka.new_topic(cleanup_policy="compact")
    messages = [message(1, key="a"), message(2, key=None), message(3, key="b")]
    with opened(kafka.client, compacted, exactly_once=exactly_once) as sink:
        outcomes = sink.send(batch(messages, token=sink.new_token()))
    assert [type(outcome) for outcome in outcomes] == [type(DELIVERED), Reject, type(DELIVERED)]
    assert "has no key" in str(outcomes[1])
    assert ids(kafka.read(compacted)) == [str(messages[0].message_id), str(messages[2].message_id)]


def test_time_that_the_topic_finds_unfit_is_tried_again(kafka: KafkaCluster) -> None:
    topic = kafka.new_topic(message_timestamp_before_max_ms=3_600_000)
    messages = [message(1), message(2, created_us=int(time.time() * 1e6))]
    with opened(kafka.client, topic, timestamp="written") as sink:
        outcomes = sink.send(batch(messages))
    assert [type(outcome) for outcome in outcomes] == [Retry, type(DELIVERED)]
