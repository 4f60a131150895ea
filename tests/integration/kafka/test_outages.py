"""Brokers that stop, freeze and die."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from sinks.base import DELIVERED, SinkUnavailable
from sinks.kafka.sink import KafkaSink
from sinks.testing import batch, message
from tests.kafka_sinks import assert_in_order, deliver_all, make, opened
from tests.servers.base import wait_until
from tests.servers.kafka import KafkaCluster, new_cluster, new_name

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def single() -> Iterator[KafkaCluster]:
    """A broker of this module's own, which creates topics when they are used."""
    with new_cluster(auto_create_topics_enable="true") as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _running(single: KafkaCluster) -> None:
    if single.brokers[0].server is None:
        single.brokers[0].start()


def test_topic_that_the_cluster_creates_itself(single: KafkaCluster) -> None:
    """The question for it makes the cluster create it, and the next try finds it."""
    topic = new_name()
    with opened(single.client, topic) as sink:
        assert deliver_all(sink, [message(1)], timeout=20) > 0
    assert len(single.read(topic)) == 1


def test_broker_is_stopped_and_started(single: KafkaCluster) -> None:
    messages = [message(number, key=f"key-{number % 10}") for number in range(1000)]
    plain, once = (single.new_topic(partitions=4) for _ in range(2))
    sinks = {
        plain: make(single.client, plain, ordered=True, timeout=2),
        once: make(single.client, once, ordered=True, timeout=2, exactly_once=True),
    }
    for sink in sinks.values():
        assert deliver_all(sink, messages[:100]) == 0
    single.brokers[0].stop()
    for sink in sinks.values():
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(SinkUnavailable):
                sink.send(batch(messages[100:200], token=sink.new_token()))
            assert time.monotonic() - began < 6
            sink.close()
    single.brokers[0].start()
    for topic, sink in sinks.items():
        deliver_all(sink, messages[100:])
        sink.close()
        records = single.read(topic)
        assert_in_order(records, messages)
        assert len(records) == 1000  # nothing had left


def test_open_says_that_nobody_is_there(single: KafkaCluster) -> None:
    single.brokers[0].stop()
    sink = make(single.client, "t", timeout=5)
    began = time.monotonic()
    with pytest.raises(SinkUnavailable) as raised:
        sink.open()
    sink.close()
    assert time.monotonic() - began < 4
    assert not raised.value.unknown
    assert "refused" in raised.value.reason


@pytest.mark.parametrize("ordered", [False, True])
def test_full_queue_waits_for_a_frozen_broker(single: KafkaCluster, ordered: bool) -> None:
    topic = single.new_topic()
    messages = [message(number, key="k") for number in range(500)]
    server = single.brokers[0].server
    assert server
    with opened(single.client, topic, ordered=ordered, timeout=10, queue_buffering_max_messages=100) as sink:
        sink.send(batch([message(1000)]))
        server.freeze()
        threading.Timer(3.0, server.thaw).start()
        began = time.monotonic()
        assert set(sink.send(batch(messages))) == {DELIVERED}
        assert time.monotonic() - began > 2.5
    assert len(single.read(topic)) == 501


def test_frozen_broker_is_unknown_in_time_and_what_waits_is_not_sent(single: KafkaCluster) -> None:
    topic = single.new_topic()
    messages = [message(number, key="k") for number in range(500)]
    server = single.brokers[0].server
    assert server
    with opened(single.client, topic, ordered=True, timeout=1.5, queue_buffering_max_messages=100) as sink:
        sink.send(batch([message(1000)]))
        server.freeze()
        try:
            began = time.monotonic()
            with pytest.raises(SinkUnavailable) as raised:
                sink.send(batch(messages))
            assert 1.4 < time.monotonic() - began < 5
            assert raised.value.unknown
        finally:
            server.thaw()
        sink.close()
        deliver_all(sink, messages, size=500)
    # What was on the way may have arrived: never more than was handed over, and never out of order.
    records = [record for record in single.read(topic) if record.key]
    assert_in_order(records, messages)
    assert len(records) <= 600


def answers(sink: KafkaSink) -> bool:
    try:
        return sink.ask()
    except SinkUnavailable:
        return False


@pytest.mark.parametrize("exactly_once", [False, True])
def test_sign_of_life_is_the_broker_s_own(single: KafkaCluster, exactly_once: bool) -> None:
    """A broker that accepts connections and never answers gives none, whatever was learnt of it before.

    In the same way a message whose earlier attempts are in doubt would wait for the topic of marks only.
    """
    topic = single.new_topic()
    server = single.brokers[0].server
    assert server
    with opened(single.client, topic, exactly_once=exactly_once, timeout=2) as sink:
        first = batch([message(1)], token=sink.new_token())
        assert sink.send(first) == [DELIVERED]
        assert sink.ask()
        server.freeze()
        try:
            wait_until(lambda: not answers(sink))  # it takes a moment to freeze
            sink.close()
            with pytest.raises(SinkUnavailable):
                sink.send(batch([message(1, prior_tokens=(first.token,))], token=sink.new_token()))
        finally:
            server.thaw()
        assert sink.ask()


def test_long_linger_delays_no_send(single: KafkaCluster) -> None:
    topic = single.new_topic(partitions=3)
    with opened(single.client, topic, linger_ms=5000) as sink:
        sink.send(batch([message(1000)]))
        began = time.monotonic()
        assert set(sink.send(batch([message(number) for number in range(436)]))) == {DELIVERED}
        assert time.monotonic() - began < 4


def test_lost_claim_ends_the_wait_at_once(single: KafkaCluster) -> None:
    topic = single.new_topic()
    server = single.brokers[0].server
    assert server
    lost = threading.Event()
    with opened(single.client, topic, timeout=10) as sink, ThreadPoolExecutor(1) as pool:
        sink.send(batch([message(1000)]))
        server.freeze()
        try:
            sending = pool.submit(sink.send, batch([message(1), message(2)], lost=lost.is_set))
            time.sleep(0.3)
            assert not sending.done()
            lost.set()
            assert len(sending.result(timeout=1)) == 2
        finally:
            server.thaw()
