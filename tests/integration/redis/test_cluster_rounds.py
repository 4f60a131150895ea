"""Rounds of one claim in a cluster: what was answered once stays answered, and what was unknown stays unknown.

A batch is several calls, so each round ends in its own mix of answered, refused, silent and not even tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import pytest

from sinks.base import DELIVERED, Batch, Outcome, SinkUnavailable
from sinks.redis.stream import RedisStreamSink
from sinks.template import Template
from sinks.testing import batch, message
from tests.redis_clusters import Cluster, run_cluster
from tests.redis_sinks import names, streams
from tests.servers.base import wait_until
from tests.servers.proxy import Direction


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with run_cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    running.clear()
    yield running
    for proxy in running.proxies:
        proxy.resume()


def claim_of(cluster: Cluster) -> Batch:
    """A message to a stream on each node: number 0 to node 0."""
    return batch([message(node, headers={"to": cluster.stream(node)}) for node in range(3)])


@contextmanager
def half_answered(cluster: Cluster, claim: Batch, *, broken: bool = False) -> Iterator[RedisStreamSink]:
    """A sink whose first round was answered by nodes 0 and 2, not by node 1; `broken`: node 0 has no stream there."""
    with streams(cluster.url, timeout=0.4) as sink:
        sink.send(claim_of(cluster))
        cluster.clear()
        if broken:
            cluster.clients[0].set(cluster.stream(0), "no stream")
        cluster.proxies[1].stall(Direction.TO_CLIENT)
        with pytest.raises(SinkUnavailable) as caught:
            sink.send(claim)
        assert caught.value.unknown
        yield sink


def answers(sink: RedisStreamSink, claim: Batch) -> Sequence[Outcome]:
    """None where it is not the time: a node that says nothing may be the one that is asked for the others."""
    with suppress(SinkUnavailable):
        return list(sink.send(claim))
    return []


def refuse(cluster: Cluster) -> None:
    cluster.proxies[0].refuse()
    cluster.proxies[0].cut()


def stall(cluster: Cluster) -> None:
    cluster.proxies[0].stall()


def full(cluster: Cluster) -> None:
    cluster.clients[0].config_set("maxmemory", 1)


@pytest.mark.parametrize("trouble", [refuse, stall, full])
def test_answered_slot_is_delivered_whatever_its_node_does_later(
    cluster: Cluster, trouble: Callable[[Cluster], None]
) -> None:
    """Were its messages released instead, their next claim would know no token to ask about, and push them again.

    The same way could go: its answer lost, its node out of time, its slot moved in the second round; its connection
    closed between the rounds, as the relay closes a sink that raised.
    """
    claim = claim_of(cluster)
    with half_answered(cluster, claim) as sink:
        trouble(cluster)
        cluster.proxies[1].resume()
        sink.close()
        try:
            wait_until(lambda: answers(sink, claim) == [DELIVERED] * 3, what="all being answered")
        finally:
            cluster.clients[0].config_set("maxmemory", 0)
    assert [len(cluster.payloads(cluster.stream(node))) for node in range(3)] == [1, 1, 1]


def test_round_without_time_keeps_what_was_answered(cluster: Cluster) -> None:
    """A claim that is lost in the second round: no call is made, and what was answered is not given back."""
    claim = claim_of(cluster)
    with half_answered(cluster, claim) as sink:
        stale = batch(claim.messages, token=claim.token, lost=lambda: True)
        with pytest.raises(SinkUnavailable) as caught:
            sink.send(stale)
        assert caught.value.unknown, "node 1 may have it"
        cluster.proxies[1].resume()
        assert list(sink.send(claim)) == [DELIVERED] * 3
    assert [len(cluster.payloads(cluster.stream(node))) for node in range(3)] == [1, 1, 1]


def test_failures_in_an_answer_are_remembered_too(cluster: Cluster) -> None:
    claim = claim_of(cluster)
    with half_answered(cluster, claim, broken=True) as sink:
        cluster.clients[0].delete(cluster.stream(0))
        refuse(cluster)
        cluster.proxies[1].resume()
        assert names(sink.send(claim)) == ["Hold", "Delivered", "Delivered"]
    assert cluster.payloads(cluster.stream(0)) == []


def test_answers_end_with_their_token(cluster: Cluster) -> None:
    with streams(cluster.url) as sink:
        for _ in range(2):
            assert list(sink.send(claim_of(cluster))) == [DELIVERED] * 3
    assert [len(cluster.payloads(cluster.stream(node))) for node in range(3)] == [2, 2, 2]


def test_outage_leaves_nothing_behind_in_the_sender(cluster: Cluster) -> None:
    """Claim after claim fails; each has its own token, and nobody will ever call it settled."""
    with streams(cluster.url) as sink:
        for proxy in cluster.proxies:
            proxy.refuse()
            proxy.cut()
        for _ in range(20):
            with pytest.raises(SinkUnavailable):
                sink.send(claim_of(cluster))
        sizes = [len(value) for value in vars(sink.fence).values() if isinstance(value, dict | set)]
        assert sum(sizes) < 10


def test_renamed_stream_knows_nothing_of_the_mark_in_the_old_slot(cluster: Cluster) -> None:
    """A limit that the docs name: the next claim asks in the slot of the new name, where there is no mark."""
    first, second = cluster.stream(0), cluster.stream(1)
    claim = batch([message(1)])
    with streams(cluster.url, stream=Template(first)) as sink:
        sink.send(claim)
    again = batch([claim.messages[0]._replace(prior_tokens=(claim.token,))])
    with streams(cluster.url, stream=Template(second)) as renamed:
        assert list(renamed.send(again)) == [DELIVERED]
    assert [len(cluster.payloads(name)) for name in (first, second)] == [1, 1]
