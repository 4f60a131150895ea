"""The topic that tells what became of claims: what others do to it, and to whom that matters.

Whatever happens there, a message that was delivered is not sent again while the topic can tell, none dies for it, and
messages whose outcome is known are delivered.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewPartitions

from sinks.base import DELIVERED, Batch, Hold, SinkConfig, SinkUnavailable
from sinks.kafka.claims import CONFIG
from sinks.kafka.marks import place_of
from sinks.kafka.sink import KafkaSink
from sinks.testing import batch, message
from tests.kafka_sinks import ids, opened
from tests.servers.base import wait_until
from tests.servers.kafka import QUIET, KafkaCluster, new_cluster, new_name


def claim(sink: KafkaSink, numbers: range) -> Batch:
    return batch([message(number) for number in numbers], token=sink.new_token())


def again(sink: KafkaSink, claim: Batch, *more: int) -> Batch:
    """The same messages, claimed by somebody who does not know what became of this claim; and others."""
    known = [one._replace(prior_tokens=(*one.prior_tokens, claim.token)) for one in claim.messages]
    return batch([*known, *(message(number) for number in more)], token=sink.new_token())


@contextmanager
def once(kafka: KafkaCluster, topic: str, claims: str, timeout: float = 10) -> Iterator[KafkaSink]:
    with opened(kafka.client, topic, exactly_once=True, claims_topic=claims, timeout=timeout) as sink:
        yield sink


def stranger(kafka: KafkaCluster, **options: object) -> Producer:
    return Producer({**kafka.client, **QUIET, **options})


@contextmanager
def open_transaction(kafka: KafkaCluster, topic: str, partitions: int) -> Iterator[None]:
    """Somebody who does not commit, in every partition of a topic."""
    producer = stranger(kafka, **{"transactional.id": f"stranger-{uuid4()}"})
    producer.init_transactions(20)
    producer.begin_transaction()
    for partition in range(partitions):
        producer.produce(topic, b"open", partition=partition)
    producer.flush(20)
    try:
        yield
    finally:
        producer.abort_transaction(20)


def underscored(options: dict[str, str]) -> dict[str, Any]:
    return {name.replace(".", "_"): value for name, value in options.items()}


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Of topics; librdkafka's own lines begin otherwise."""
    lines = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    return [line for line in lines if line.startswith("topic ")]


def test_records_of_others_are_skipped_and_told_once(kafka: KafkaCluster, caplog: pytest.LogCaptureFixture) -> None:
    """No key, a key that is none of ours, a value that is none or binary: all that a stranger can write there.

    In the same way values that look like marks could take long to read, or stand under a key that is ours.
    """
    topic, claims = kafka.new_topic(), new_name()
    with once(kafka, topic, claims) as first, once(kafka, topic, claims) as heir:
        foreign = stranger(kafka)
        values = [b"", None, b"\xff\xfe", b"z", b"o1..2", b"a" * 100_000, b"o" + b"1." * 1000 + b"1", b"a"]
        sent = []
        for number, value in enumerate(values):
            for key in (None, b"", b"key", uuid4().bytes, b"x" * 5000):
                for partition in range(8):
                    foreign.produce(claims, value, key=key, partition=partition)
            assert foreign.flush(20) == 0
            sent.append(claim(first, range(10 * number, 10 * number + 5)))
            assert first.send(sent[-1]) == [DELIVERED] * 5
        for one in sent:
            place = place_of(one.token)
            for value in (b"junk", None):
                foreign.produce(claims, value, key=one.token.bytes, partition=place.partition)
            for _ in range(20):
                foreign.produce(claims, b"o" + b"1." * 200_000 + b"1", key=uuid4().bytes, partition=place.partition)
        assert foreign.flush(20) == 0
        for one in sent:
            assert heir.send(again(heir, one, -1 - one.messages[0].id)) == [DELIVERED] * 6
    assert len(kafka.read(topic)) == 6 * len(values)
    (line,) = said(caplog)
    assert claims in line
    assert "no relay wrote" in line


def test_more_partitions_hide_no_mark(kafka: KafkaCluster) -> None:
    """In the same way fewer could: a topic that somebody makes by hand with one partition will do."""
    topic, claims = kafka.new_topic(), kafka.new_topic()
    sent: list[Batch] = []
    for partitions in (1, 13, 70):
        if partitions > 1:
            admin = kafka.admin()
            admin.create_partitions([NewPartitions(claims, partitions)])[claims].result(20)
        for _ in range(4):
            with once(kafka, topic, claims) as sink:
                sent.append(claim(sink, range(10 * len(sent), 10 * len(sent) + 10)))
                assert sink.send(sent[-1]) == [DELIVERED] * 10
        with once(kafka, topic, claims) as heir:
            for one in sent:
                assert heir.send(again(heir, one)) == [DELIVERED] * 10
    assert len({place_of(one.token).partition for one in sent}) > 3
    found = ids(kafka.read(topic))
    assert len(found) == len(set(found)) == 10 * len(sent)


def test_topic_deleted_by_hand_is_told_and_loses_nothing(kafka: KafkaCluster, caplog: pytest.LogCaptureFixture) -> None:
    """What it knew is gone, so messages in doubt get a second copy; their first sender is shut out all the same.

    In the same way the topic may be emptied, by its retention or by hand: what it knew is gone as well.
    """
    topic, claims = kafka.new_topic(), new_name()
    with once(kafka, topic, claims, timeout=3) as first, once(kafka, topic, claims) as heir:
        sent, undone = claim(first, range(5)), claim(first, range(5, 10))
        assert first.send(sent) == [DELIVERED] * 5
        kafka.delete_topic(claims)
        # Not "revoked": that would count as an attempt.
        with pytest.raises(SinkUnavailable):
            first.send(undone)
        with pytest.raises(SinkUnavailable, match=f"topic {claims} was replaced") as raised:
            heir.send(again(heir, undone))
        assert not raised.value.unknown
        heir.close()
        heir.open()
        assert heir.send(again(heir, undone)) == [DELIVERED] * 5
        assert heir.send(again(heir, sent)) == [DELIVERED] * 5
        # It may know by itself that it has delivered this; it sends neither again.
        with suppress(SinkUnavailable):
            assert first.send(sent) == [DELIVERED] * 5
        with pytest.raises(SinkUnavailable, match=f"topic {claims} was replaced") as raised:
            first.send(undone)
        assert raised.value.unknown
        assert first.send(claim(first, range(10, 15))) == [DELIVERED] * 5
    found = ids(kafka.read(topic))
    assert len(set(found)) == 15
    assert len(found) == 20
    assert any("was replaced" in line for line in said(caplog))
    assert any("may arrive twice" in line for line in said(caplog))
    assert kafka.topic_option(claims, "retention.ms") == CONFIG["retention.ms"]


@pytest.fixture(scope="module")
def odd() -> Iterator[KafkaCluster]:
    """A cluster that makes topics by itself, with options that do not suit, and takes short transactions only."""
    with new_cluster(
        auto_create_topics_enable="true",
        log_retention_ms=3_600_000,
        transaction_max_timeout_ms=5000,
        transaction_abort_timed_out_transaction_cleanup_interval_ms=500,
    ) as cluster:
        yield cluster


def test_topic_that_the_cluster_would_create_is_made_as_it_should_be(odd: KafkaCluster) -> None:
    topic, claims = odd.new_topic(), new_name()
    with once(odd, topic, claims) as sink:
        assert sink.send(claim(sink, range(5))) == [DELIVERED] * 5
    assert {option: odd.topic_option(claims, option) for option in CONFIG} == CONFIG
    assert len(odd.admin().list_topics(claims, timeout=5).topics[claims].partitions) == 8


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("retention.ms", "60000"),
        ("retention.bytes", "1000000"),
        ("cleanup.policy", "compact"),
        ("message.timestamp.type", "CreateTime"),
    ],
)
def test_topic_that_somebody_made_otherwise_is_told(
    kafka: KafkaCluster, caplog: pytest.LogCaptureFixture, option: str, value: str
) -> None:
    claims = kafka.new_topic(**underscored({**CONFIG, option: value}))
    with once(kafka, kafka.new_topic(), claims) as sink:
        assert sink.send(claim(sink, range(5))) == [DELIVERED] * 5
    (line,) = said(caplog)
    assert line == f"topic {claims}: {option} is {value}; expected {CONFIG[option]}"


def test_topic_that_fits_is_no_matter(kafka: KafkaCluster, caplog: pytest.LogCaptureFixture) -> None:
    options = underscored({**CONFIG, "retention.ms": "-1"})
    with once(kafka, kafka.new_topic(), kafka.new_topic(partitions=3, **options)):
        pass
    assert said(caplog) == []


def test_no_clock_but_the_database_s_is_in_a_record_or_a_token(kafka: KafkaCluster) -> None:
    """Kafka refuses records from more than an hour ahead, and deletes old ones. With the relay's own clock in them, a
    wrong one would stop deliveries, or hide what became of them.

    In the same way a claim is made now, and the clock of the machine is set while its messages are sent.
    """
    topic, claims = kafka.new_topic(), kafka.new_topic(message_timestamp_type="CreateTime")
    claimed_us = time.time_ns() // 1000 - 86_400_000_000
    with once(kafka, topic, claims) as sink:
        # Never used: closed by the other, with a mark of that one's.
        unused = sink.new_token()
        one, other = claim(sink, range(2)), claim(sink, range(2, 4))
        for sent in (one, other):
            assert sink.send(replace(sent, claimed_us=claimed_us)) == [DELIVERED] * 2
        assert one.token.bytes[:-2] == other.token.bytes[:-2]
    with once(kafka, topic, claims) as heir:
        later = batch([message(4, prior_tokens=(unused,))], token=heir.new_token(), claimed_us=claimed_us)
        assert heir.send(later) == [DELIVERED]
    records = kafka.read(topic, claims)
    assert len(records) == 5 + 4
    assert {record.timestamp_ms for record in records} == {claimed_us // 1000}


def test_open_transaction_of_a_stranger_holds_only_what_is_in_doubt(kafka: KafkaCluster) -> None:
    """As long as it is open, nobody can read which marks behind it are committed.

    In the same way a partition without a leader keeps what is in it: the others' messages go on.
    """
    topic, claims = kafka.new_topic(), new_name()
    with once(kafka, topic, claims) as first, once(kafka, topic, claims, timeout=4) as heir:
        with open_transaction(kafka, claims, 8):
            sent = claim(first, range(5))
            assert first.send(sent) == [DELIVERED] * 5
            began = time.monotonic()
            outcomes = heir.send(again(heir, sent, 5, 6, 7))
            assert time.monotonic() - began < 8
            assert outcomes[5:] == [DELIVERED] * 3
            for outcome in outcomes[:5]:
                assert isinstance(outcome, Hold)
                assert outcome.destination == claims
                assert "a transaction is open" in outcome.reason
        assert heir.send(again(heir, sent)) == [DELIVERED] * 5
    assert len(kafka.read(topic)) == 8


def test_order_holds_while_an_earlier_message_is_in_doubt(kafka: KafkaCluster) -> None:
    topic, claims = kafka.new_topic(), new_name()
    options = {"ordered": True, "exactly_once": True, "claims_topic": claims}
    with opened(kafka.client, topic, **options) as first, opened(kafka.client, topic, timeout=4, **options) as heir:
        with open_transaction(kafka, claims, 8):
            sent = batch([message(1, key="a")], token=first.new_token())
            assert first.send(sent) == [DELIVERED]
            more = [message(2, key="b"), message(3, key="a"), message(4, key="c")]
            later = batch([*again(heir, sent).messages, *more], token=heir.new_token())
            in_doubt, other, behind, last = heir.send(later)
            assert isinstance(in_doubt, Hold)
            assert isinstance(behind, Hold)
            assert [other, last] == [DELIVERED] * 2
        messages = [*again(heir, sent).messages, more[1]]
        assert heir.send(batch(messages, token=heir.new_token())) == [DELIVERED] * 2
    assert [record.key for record in kafka.read(topic)] == [b"a", b"b", b"c", b"a"]


def test_each_sink_has_a_topic_of_its_own(kafka: KafkaCluster) -> None:
    options = KafkaSink.Options.model_validate({"exactly_once": True})
    for name in ("orders", "emails"):
        sink = KafkaSink(SinkConfig(name, options, client=kafka.client))
        sink.open()
        sink.close()
    topics = kafka.admin().list_topics(timeout=5).topics
    assert {"outbox-relay.orders.claims", "outbox-relay.emails.claims"} <= topics.keys()


def test_sender_that_gives_up_leaves_no_transaction_open(kafka: KafkaCluster) -> None:
    """Whoever reads committed records stands still at one, until Kafka ends it: that takes up to 21 seconds.

    A claim can be lost at any point of a send; in the same way the time of a send may be over, or the relay may stop.
    """
    topic, claims = kafka.new_topic(), new_name()
    for asked in range(1, 40, 2):
        with once(kafka, topic, claims) as sink:
            with suppress(SinkUnavailable):
                sink.send(batch([message(asked)], token=sink.new_token(), lost=Lost(asked)))
    with once(kafka, topic, claims) as sink:
        session = sink._sender._session  # type: ignore[union-attr]
        assert session
        session.begin()
        session.client.producer.produce(topic, b"open")
        session.client.producer.flush(5)
    with stranger_reading(kafka, topic) as consumer:
        where = TopicPartition(topic, 0)
        with stranger_reading(kafka, topic, "read_uncommitted") as eager:
            end = eager.get_watermark_offsets(where, timeout=5)[1]
        assert end > 0
        wait_until(lambda: consumer.get_watermark_offsets(where, timeout=5)[1] >= end, timeout=3)


class Lost:
    """True from the n-th question on."""

    def __init__(self, questions: int) -> None:
        self._left = questions

    def __call__(self) -> bool:
        self._left -= 1
        return self._left <= 0


@contextmanager
def stranger_reading(kafka: KafkaCluster, topic: str, isolation: str = "read_committed") -> Iterator[Consumer]:
    consumer = Consumer({**kafka.client, "group.id": topic, "isolation.level": isolation, **QUIET})
    try:
        yield consumer
    finally:
        consumer.close()


def test_transactions_are_as_short_as_the_cluster_wants_them(odd: KafkaCluster) -> None:
    """By default it takes up to a quarter of an hour; `send_timeout` may be longer.

    In the same way the user's own `transaction.timeout.ms` may be too long. And a sender that dies is not waited for
    longer than its transaction may take.
    """
    topic = odd.new_topic()
    with opened(odd.client, topic, exactly_once=True, timeout=100) as sink:
        assert sink.send(claim(sink, range(5))) == [DELIVERED] * 5
        assert 2000 < sink.options["transaction.timeout.ms"] <= 5000
    options = {"transaction_timeout_ms": 60_000, "message_timeout_ms": 11_000}
    with opened(odd.client, topic, exactly_once=True, **options) as sink:
        assert sink.send(claim(sink, range(5, 10))) == [DELIVERED] * 5
    assert len(odd.read(topic)) == 10
    killed_in_a_transaction(odd, topic)
    began = time.monotonic()
    assert len(odd.read(topic)) == 10
    assert time.monotonic() - began < 15


def killed_in_a_transaction(kafka: KafkaCluster, topic: str) -> None:
    code = """
import os, signal, sys
from sinks.kafka.session import Session
from sinks.testing import batch, message
from tests.kafka_sinks import make

Session.commit = lambda session, patience: os.kill(os.getpid(), signal.SIGKILL)
sink = make({"bootstrap.servers": sys.argv[1]}, sys.argv[2], exactly_once=True)
sink.open()
sink.send(batch([message(1)], token=sink.new_token()))
"""
    command = [sys.executable, "-c", code, kafka.bootstrap, topic]
    assert subprocess.run(command, cwd=Path(__file__).parents[3], check=False, timeout=60).returncode == -9
