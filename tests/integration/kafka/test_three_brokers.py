"""A partition's leader dies under load, comes back without its data, and leads again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from sinks.base import DELIVERED, Hold
from sinks.kafka.sink import KafkaSink
from sinks.testing import batch, message
from tests.kafka_sinks import assert_in_order, deliver_all, make, opened
from tests.servers.base import wait_until
from tests.servers.kafka import KafkaCluster, new_cluster

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def three() -> Iterator[KafkaCluster]:
    with new_cluster(3) as cluster:
        yield cluster


def test_leader_is_killed_wiped_and_brought_back_under_load(three: KafkaCluster) -> None:
    topics = {once: three.new_topic(partitions=3, replicas=3, min_insync_replicas=2) for once in (False, True)}
    weak = three.new_topic(replicas=3, min_insync_replicas=3)
    messages = [message(number, key=f"key-{number % 30}") for number in range(200_000)]
    stop = threading.Event()

    def send(once: bool, sink: KafkaSink) -> int:
        sent = 0
        while not stop.is_set():
            deliver_all(sink, messages[sent : sent + 50])
            sent += 50
        return sent

    sinks = {once: make(three.client, topic, ordered=True, exactly_once=once) for once, topic in topics.items()}
    leaders = {topic: three.leader(topic) for topic in topics.values()}
    victim = leaders[topics[False]]
    with ThreadPoolExecutor(2) as pool:
        running = {once: pool.submit(send, once, sink) for once, sink in sinks.items()}
        try:
            wait_until(lambda: three.read(topics[False]), what="the first records")
            victim.kill()
            wait_until(lambda: three.leader(topics[False]) != victim, timeout=20, what="another leader")
            with opened(three.client, timeout=2) as sink:
                headers = [{"topic": weak}, {"topic": topics[False]}]
                held, delivered = sink.send(batch([message(-number, headers=to) for number, to in enumerate(headers)]))
            assert isinstance(held, Hold)
            assert held.destination == weak
            assert delivered == DELIVERED
            victim.forget(topics[False])
            victim.start()
            for topic in topics.values():
                wait_until(lambda: three.in_sync(topic) == 9, timeout=30, what="all replicas")  # noqa: B023
                wait_until(lambda: three.leader(topic) == leaders[topic], timeout=20, what="the old leader")  # noqa: B023
        finally:
            stop.set()
        sent = {once: sending.result(timeout=30) for once, sending in running.items()}
    for once, topic in topics.items():
        sinks[once].close()
        records = [record for record in three.read(topic) if record.key]
        assert_in_order(records, messages[: sent[once]])
        if once:
            assert len(records) == sent[once]
