"""Streams in a Redis Cluster: each slot has a fence of its own, and one that fails stops no other."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from sinks.base import DELIVERED, Batch, ClaimRevoked, Hold, Message, SinkConfig, SinkUnavailable
from sinks.redis.cluster import slot_of
from sinks.redis.stream import RedisStreamOptions, RedisStreamSink
from sinks.template import Template
from sinks.testing import batch, message
from tests.redis_clusters import Cluster, run_cluster
from tests.redis_sinks import names, sidekiq, streams
from tests.servers.proxy import Direction
from tests.servers.redis import VERSIONS

VERSIONS_TO_TEST = [VERSIONS[0], pytest.param("redis:8.0", marks=pytest.mark.full)]


@pytest.fixture(scope="module", params=VERSIONS_TO_TEST)
def running(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with run_cluster(request.param) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    """An empty one, all proxies open."""
    running.clear()
    yield running
    for proxy in running.proxies:
        proxy.resume()


def to(stream: str, number: int, **changes: Any) -> Message:
    return message(number, headers={"to": stream}, **changes)


def one_each(cluster: Cluster, count: int = 1) -> list[Message]:
    """Messages to a stream on each node: the first is to the first node."""
    return [to(cluster.stream(number % 3), number) for number in range(3 * count)]


@contextmanager
def connected(cluster: Cluster, **options: Any) -> Iterator[RedisStreamSink]:
    """A sink with a connection to every node."""
    with streams(cluster.url, **options) as sink:
        sink.send(batch(one_each(cluster)))
        cluster.clear()
        yield sink


def after(claim: Batch, *positions: int) -> list[Message]:
    """Messages of a claim that died, as the next owner gets them; default: all."""
    chosen = positions or range(len(claim.messages))
    return [
        one._replace(prior_tokens=(*one.prior_tokens, claim.token)) for one in map(claim.messages.__getitem__, chosen)
    ]


def assert_once(cluster: Cluster, messages: Sequence[Message]) -> None:
    """Each message is in its stream, once, in order."""
    streams_of = {one.headers["to"] for one in messages}
    expected = {stream: [one.data for one in messages if one.headers["to"] == stream] for stream in streams_of}
    assert {stream: cluster.payloads(stream) for stream in streams_of} == expected


def test_each_stream_gets_its_own_on_its_own_node(cluster: Cluster) -> None:
    messages = [to(cluster.stream(number % 3, number % 2), number) for number in range(600)]
    with streams(cluster.url) as sink:
        assert list(sink.send(batch(messages))) == [DELIVERED] * 600
    assert_once(cluster, messages)


def test_one_known_node_is_enough(cluster: Cluster) -> None:
    messages = one_each(cluster)
    with streams(cluster.url.partition(",")[0]) as sink:
        assert list(sink.send(batch(messages))) == [DELIVERED] * 3
    assert_once(cluster, messages)


def test_settled_marks_go_wherever_they_are(cluster: Cluster) -> None:
    first, second = batch(one_each(cluster)), batch([to(cluster.stream(0), 9)])
    with streams(cluster.url) as sink:
        sink.send(first)
        assert len(cluster.marks()[first.token.hex]) == 3
        sink.send(batch(second.messages, token=second.token, settled=(first.token,)))
    assert set(cluster.marks()) == {second.token.hex}


def test_node_that_is_gone_holds_its_own_messages_only(cluster: Cluster) -> None:
    messages = one_each(cluster, 2)
    with streams(cluster.url) as sink:
        cluster.proxies[1].refuse()
        cluster.proxies[1].cut()
        outcomes = sink.send(batch(messages))
        assert names(outcomes) == ["Delivered", "Hold", "Delivered"] * 2
        assert isinstance(outcomes[1], Hold)
        assert outcomes[1].destination == cluster.stream(1)
        cluster.proxies[1].resume()
        assert list(sink.send(batch([messages[1], messages[4]]))) == [DELIVERED] * 2
    assert_once(cluster, messages)


def test_slot_that_the_sink_has_no_other_than(cluster: Cluster) -> None:
    only = cluster.stream(0)
    with streams(cluster.url, stream=Template(only)) as sink:
        cluster.begin_to_move(slot_of(only), 0, 1)
        with pytest.raises(SinkUnavailable, match=r"ASK|TRYAGAIN") as caught:
            sink.send(batch([message(1)]))
        assert not caught.value.unknown
        cluster.end_to_move(slot_of(only), 0, 1)
        assert list(sink.send(batch([message(1)]))) == [DELIVERED]
        cluster.begin_to_move(slot_of(only), 1, 0)
        cluster.end_to_move(slot_of(only), 1, 0)
    assert len(cluster.payloads(only)) == 1


def test_slot_that_nobody_serves_for_a_while(cluster: Cluster) -> None:
    slot = slot_of(cluster.stream(0))
    for client in cluster.clients:
        client.config_set("cluster-require-full-coverage", "no")
    cluster.clients[0].execute_command("CLUSTER DELSLOTS", slot)
    with streams(cluster.url) as sink:
        for _ in range(2):
            assert names(sink.send(batch([to(cluster.stream(0), 1)]))) == ["Hold"]
        cluster.clients[0].execute_command("CLUSTER ADDSLOTS", slot)
        assert list(sink.send(batch([to(cluster.stream(0), 1)]))) == [DELIVERED]
    assert len(cluster.payloads(cluster.stream(0))) == 1


def test_login_that_no_node_takes(cluster: Cluster) -> None:
    with streams(cluster.url.partition(",")[0]) as sink:
        for client in cluster.clients:
            client.config_set("requirepass", "secret")
        try:
            cluster_of_one = batch([to(cluster.stream(1), 1)])
            with pytest.raises(SinkUnavailable, match="NOAUTH"):
                sink.send(cluster_of_one)
        finally:
            for client in cluster.clients:
                client.config_set("requirepass", "")


def test_cluster_that_is_gone_is_an_outage(cluster: Cluster) -> None:
    messages = one_each(cluster)
    with streams(cluster.url) as sink:
        for proxy in cluster.proxies:
            proxy.refuse()
            proxy.cut()
        for _ in range(2):
            with pytest.raises(SinkUnavailable) as caught:
                sink.send(batch(messages))
            assert not caught.value.unknown
        with pytest.raises(SinkUnavailable, match="refused"):
            sink.open()
        for proxy in cluster.proxies:
            proxy.resume()
        assert list(sink.send(batch(messages))) == [DELIVERED] * 3
    assert_once(cluster, messages)


@pytest.mark.parametrize("direction", list(Direction))
def test_unknown_answer_of_one_node_is_asked_again(cluster: Cluster, direction: Direction) -> None:
    claim = batch(one_each(cluster))
    with connected(cluster, timeout=0.4) as sink:
        cluster.proxies[1].stall(direction)
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(SinkUnavailable) as caught:
                sink.send(claim)
            assert caught.value.unknown
            assert time.monotonic() - began < 4
        for node in (0, 2):
            assert len(cluster.payloads(cluster.stream(node))) == 1
        cluster.proxies[1].resume()
        assert list(sink.send(claim)) == [DELIVERED] * 3
    assert_once(cluster, claim.messages)


def test_refusal_after_an_unknown_answer_does_not_make_it_known(cluster: Cluster) -> None:
    claim = batch(one_each(cluster))
    with connected(cluster, timeout=0.4) as sink, streams(cluster.url) as next_owner:
        cluster.proxies[1].stall(Direction.TO_CLIENT)
        with pytest.raises(SinkUnavailable):
            sink.send(claim)
        cluster.proxies[1].refuse()
        cluster.proxies[1].cut()
        with pytest.raises(SinkUnavailable) as caught:
            sink.send(claim)
        assert caught.value.unknown
        assert names(sink.send(batch(one_each(cluster)))) == ["Delivered", "Hold", "Delivered"]
        cluster.proxies[1].resume()
        cluster.clear_streams(0, 2)
        assert list(next_owner.send(batch(after(claim)))) == [DELIVERED] * 3
    assert cluster.payloads(cluster.stream(1)) == [claim.messages[1].data]


def test_next_owner_sends_only_what_did_not_arrive(cluster: Cluster) -> None:
    claim = batch([*one_each(cluster, 2), to(cluster.stream(1, 1), 6)])
    with streams(cluster.url) as sink, streams(cluster.url) as zombie:
        cluster.proxies[1].refuse()
        cluster.proxies[1].cut()
        assert names(zombie.send(claim)) == ["Delivered", "Hold", "Delivered"] * 2 + ["Hold"]
        cluster.proxies[1].resume()
        # Its settle never came, and only some of its messages are claimed again.
        assert list(sink.send(batch([*after(claim, 0, 1, 2), to(cluster.stream(0), 7)]))) == [DELIVERED] * 4
        with pytest.raises(ClaimRevoked):
            zombie.send(claim)
        assert list(sink.send(batch(after(claim, 3, 4, 5, 6)))) == [DELIVERED] * 4
    assert_once(cluster, [*claim.messages, to(cluster.stream(0), 7)])


def test_failures_of_single_messages_come_back(cluster: Cluster) -> None:
    broken = cluster.stream(1, 1)
    claim = batch([*one_each(cluster), to(broken, 3), message(4)])
    cluster.clients[1].set(broken, "no stream")
    with streams(cluster.url, stream=Template("{header.to}")) as sink:
        outcomes = list(sink.send(claim))
        assert names(outcomes) == ["Delivered"] * 3 + ["Hold", "Reject"]
        assert outcomes[3] == Hold(
            f"{broken}: WRONGTYPE Operation against a key holding the wrong kind of value", broken
        )
        cluster.clients[1].delete(broken)
        assert list(sink.send(claim)) == outcomes
        assert names(sink.send(batch(after(claim)))) == ["Delivered"] * 4 + ["Reject"]
    assert_once(cluster, claim.messages[:4])


def test_batch_of_refused_messages_only(cluster: Cluster) -> None:
    with streams(cluster.url, stream=Template("{header.to}")) as sink:
        assert names(sink.send(batch([message(1)]))) == ["Reject"]


def test_mark_speaks_of_the_messages_of_its_slot_only(cluster: Cluster) -> None:
    """As after a change of the template: a message that went elsewhere is not believed delivered."""
    elsewhere = message(1, headers={"to": cluster.stream(0), "then": cluster.stream(1)})
    beside = message(2, headers={"to": cluster.stream(1), "then": cluster.stream(1)})
    claim = batch([elsewhere, beside])
    with streams(cluster.url) as sink:
        cluster.proxies[0].refuse()
        cluster.proxies[0].cut()
        assert names(sink.send(claim)) == ["Hold", "Delivered"]
        cluster.proxies[0].resume()
    with streams(cluster.url, stream=Template("{header.then}")) as sink:
        assert list(sink.send(batch(after(claim)))) == [DELIVERED] * 2
    assert cluster.payloads(cluster.stream(1)) == [beside.data, elsewhere.data]


def test_out_of_memory_of_one_node(cluster: Cluster) -> None:
    claim = batch(one_each(cluster))
    with streams(cluster.url) as sink:
        cluster.clients[2].config_set("maxmemory", 1)
        outcomes = sink.send(claim)
        cluster.clients[2].config_set("maxmemory", 0)
        assert names(outcomes) == ["Delivered", "Delivered", "Hold"]
        assert "OOM" in repr(outcomes[2])
        assert list(sink.send(batch(claim.messages[2:]))) == [DELIVERED]
    assert_once(cluster, claim.messages)


def test_denied_stream_holds_its_own_messages_only(cluster: Cluster) -> None:
    denied = cluster.stream(0, 1)
    keys = ["outbox-relay:mark:*", cluster.stream(0)]
    for client in cluster.clients:
        client.acl_setuser("relay", enabled=True, nopass=True, keys=keys, commands=["+@all"], reset=True)
    with streams(cluster.url.replace("://", "://relay:any@")) as sink:
        for messages in ([to(denied, 1), to(cluster.stream(0), 2)], [to(denied, 1)]):
            outcomes = sink.send(batch(messages))
            assert isinstance(outcomes[0], Hold)
            assert outcomes[0].destination == denied
            assert set(outcomes[1:]) <= {DELIVERED}
    assert len(cluster.payloads(cluster.stream(0))) == 1


def test_user_with_as_few_rights_as_the_docs_say(cluster: Cluster) -> None:
    commands = [
        "+evalsha",
        "+eval",
        "+get",
        "+set",
        "+del",
        "+expire",
        "+ping",
        "+xadd",
        "+cluster|slots",
        "+cluster|info",
    ]
    for client in cluster.clients:
        keys = ["outbox-relay:mark:*", "stream-*"]
        client.acl_setuser("few", enabled=True, nopass=True, keys=keys, commands=commands, reset=True)
    first, second = batch(one_each(cluster)), batch([to(cluster.stream(0), 9)])
    with streams(cluster.url.replace("://", "://few:any@")) as sink:
        assert list(sink.send(first)) == list(sink.send(first)) == [DELIVERED] * 3
        sink.send(batch(second.messages, token=second.token, settled=(first.token,)))
    assert set(cluster.marks()) == {second.token.hex}


def test_slot_that_moves_is_waited_for_and_followed(cluster: Cluster) -> None:
    moving, other = cluster.stream(0), cluster.stream(2)
    claims = [batch([to(moving, number), to(other, number + 10)]) for number in range(3)]
    with streams(cluster.url) as sink:
        sink.send(claims[0])
        for number, (source, target) in enumerate([(0, 1), (1, 0)], 1):
            cluster.begin_to_move(slot_of(moving), source, target)
            assert names(sink.send(claims[number])) == ["Hold", "Delivered"]
            assert names(sink.send(batch([to(moving, 99)]))) == ["Hold"], "the others go on"
            cluster.end_to_move(slot_of(moving), source, target)
            assert list(sink.send(claims[number])) == [DELIVERED] * 2
            assert list(sink.send(claims[0])) == [DELIVERED] * 2, "the mark moved, too"
    assert_once(cluster, [one for claim in claims for one in claim.messages])


def test_lost_claim_is_not_sent_any_further(cluster: Cluster) -> None:
    with streams(cluster.url) as sink:
        with pytest.raises(SinkUnavailable):
            sink.send(batch(one_each(cluster), lost=lambda: True))
    assert cluster.marks() == {}


def test_order_by_key_within_one_slot(cluster: Cluster) -> None:
    broken, fine = f"{{{cluster.stream(0)}}}:broken", f"{{{cluster.stream(0)}}}:fine"
    messages = [to("fine", 1, key="a"), to("broken", 2, key="a"), to("fine", 3, key="b"), to("fine", 4, key="a")]
    cluster.clients[0].set(broken, "no stream")
    template = Template("{{" + cluster.stream(0) + "}}:{header.to}")
    with streams(cluster.url, ordered=True, stream=template) as sink:
        assert names(sink.send(batch(messages))) == ["Delivered", "Hold", "Delivered", "Retry"]
    assert cluster.payloads(fine) == [messages[0].data, messages[2].data]


@pytest.mark.parametrize("template", ["{kind}", "{{}}{kind}", "events:{key}:{header.to}"])
def test_order_by_key_over_several_slots_is_refused_before_the_start(template: str) -> None:
    options = RedisStreamOptions(url="redis+cluster://localhost", stream=Template(template))
    with pytest.raises(ValueError, match="slot"):
        RedisStreamSink(SinkConfig("orders", options, ordered=True))
    RedisStreamSink(SinkConfig("orders", options)).close()


@pytest.mark.parametrize("template", ["orders", "{sink}", "of:{key}", "{{{key}}}:{kind}", "{{orders}}:{kind}"])
def test_order_by_key_with_one_slot_for_each_key_is_taken(template: str) -> None:
    options = RedisStreamOptions(url="redis+cluster://localhost", stream=Template(template))
    RedisStreamSink(SinkConfig("orders", options, ordered=True)).close()


def test_node_of_a_cluster_is_refused_as_a_single_server(cluster: Cluster) -> None:
    url = cluster.url.partition(",")[0].replace("+cluster", "")
    for opener, says in (
        (streams, "its URL begins with redis\\+cluster://"),
        (sidekiq, "Sidekiq does not work on one"),
    ):
        with pytest.raises(SinkUnavailable, match=says) as caught, opener(url):
            pass
        assert not caught.value.unknown
