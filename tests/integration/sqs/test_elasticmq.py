"""The SQS sink against a server of its own that speaks the protocol: what a consumer receives."""

from __future__ import annotations

import base64
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pytest

from sinks.base import DELIVERED, Hold, Reject
from sinks.testing import message
from tests.servers.base import LOCALHOST
from tests.servers.elasticmq import ElasticMq
from tests.servers.proxy import BOTH, FaultProxy
from tests.sqs_sinks import only_boto3, opened, outcomes_or_nothing, send

pytestmark = pytest.mark.full


def attributes(received: Mapping[str, Any]) -> dict[str, str]:
    return {name: value["StringValue"] for name, value in received["MessageAttributes"].items()}


@pytest.mark.parametrize("boto3", [False, True])
def test_consumer_gets_body_and_attributes(elasticmq: ElasticMq, boto3: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if boto3:
        only_boto3(monkeypatch)
    queue = elasticmq.new_queue()
    text = '{"b":1,"a":1.0,"a":2,"n":1234567890123456789,"t":"zoë 😀"}'
    one = message(1, kind="order.created", payload=text.encode(), headers={"tenant": "t-1", "list": [1, "é"]})
    two = message(2, payload=None, body=b"\xff\xfe\x00")
    with opened(elasticmq.client, queue=queue) as sink:
        assert send(sink, [one, two]) == [DELIVERED] * 2
    received = {attributes(each)["message_id"]: each for each in elasticmq.take(queue)}
    assert len(received) == 2
    assert received[str(one.message_id)]["Body"] == text
    assert attributes(received[str(one.message_id)]) == {
        "message_id": str(one.message_id),
        "kind": "order.created",
        "created_at": "2025-11-29T19:36:40.123457Z",
        "tenant": "t-1",
        "list": '[1,"é"]',
    }
    assert base64.b64decode(received[str(two.message_id)]["Body"]) == two.body
    assert attributes(received[str(two.message_id)])["content-encoding"] == "base64"


@pytest.mark.parametrize("ordered", [True, False])
def test_fifo_queue_keeps_groups_in_order_and_drops_second_copies(elasticmq: ElasticMq, ordered: bool) -> None:
    queue = elasticmq.new_queue(fifo=True)
    messages = [message(n, key=f"zoë {n % 7}", payload=b"%d" % n) for n in range(200)]
    with opened(elasticmq.client, queue=queue.rpartition("/")[2], ordered=ordered) as sink:
        for _ in range(2):
            assert send(sink, messages) == [DELIVERED] * 200
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for each in elasticmq.take(queue):
        groups[each["Attributes"]["MessageGroupId"]].append(int(each["Body"]))
    assert sorted(groups.values()) == [list(range(key, 200, 7)) for key in range(7)]


def test_message_that_the_server_finds_too_large_takes_no_neighbour_with_it(elasticmq: ElasticMq) -> None:
    # This server has a lower limit than it tells.
    queue = elasticmq.new_queue()
    messages = [message(1), message(2, payload=b'"%s"' % (b"x" * 300_000)), message(3)]
    with opened(elasticmq.client, queue=queue) as sink:
        outcomes = send(sink, messages)
    assert [type(outcome) for outcome in outcomes] == [type(DELIVERED), Reject, type(DELIVERED)]
    assert sorted(each["Body"] for each in elasticmq.take(queue)) == ['[1, "payload"]', '[3, "payload"]']


def test_missing_queue_is_held_until_it_is_there(elasticmq: ElasticMq) -> None:
    name = "made-later"
    for queue in (name, f"{elasticmq.url}/000000000000/{name}"):
        with opened(elasticmq.client, queue=queue) as sink:
            (outcome,) = send(sink, [message(1)])
            assert isinstance(outcome, Hold)
            assert outcome.destination == queue
            assert outcome.reason.startswith("queue missing: ")
            url = elasticmq.boto().create_queue(QueueName=name)["QueueUrl"]
            assert send(sink, [message(1)]) == [DELIVERED]
            elasticmq.boto().delete_queue(QueueUrl=url)
            assert isinstance(send(sink, [message(1)])[0], Hold)


def test_short_schedule_is_held_back_by_the_queue(elasticmq: ElasticMq) -> None:
    queue = elasticmq.new_queue()
    now_us = 1_764_445_001_000_000
    later = message(1, headers={"relay.at": now_us / 1e6 + 1.5})
    began = time.monotonic()
    with opened(elasticmq.client, queue=queue, schedule="sqs") as sink:
        assert send(sink, [later, message(2)], claimed_us=now_us) == [DELIVERED] * 2
    assert [each["Body"] for each in elasticmq.take(queue)] == ['[2, "payload"]']
    while not (received := elasticmq.take(queue)):
        assert time.monotonic() - began < 10
        time.sleep(0.05)
    assert time.monotonic() - began >= 1.5
    assert [each["Body"] for each in received] == ['[1, "payload"]']


def test_queues_by_template(elasticmq: ElasticMq) -> None:
    queues = [elasticmq.new_queue() for _ in range(3)]
    messages = [message(n, headers={"queue": queues[n % 3].rpartition("/")[2]}) for n in range(90)]
    with opened(elasticmq.client, queue="{header.queue}") as sink:
        assert send(sink, messages) == [DELIVERED] * 90
    assert [len(elasticmq.take(queue)) for queue in queues] == [30] * 3


def test_connections_cut_at_any_byte_lose_nothing(elasticmq: ElasticMq) -> None:
    queue = elasticmq.new_queue(fifo=True)
    waiting = [message(n, key=f"k{n % 10}", payload=b"%d" % n) for n in range(400)]
    with FaultProxy(LOCALHOST, elasticmq.port) as proxy:
        client = {**elasticmq.client, "endpoint_url": f"http://{LOCALHOST}:{proxy.port}"}
        with opened(client, queue=queue, ordered=True, size_limit=4096, in_flight=4) as sink:
            for attempt in range(60):
                if attempt % 2:
                    proxy.cut_after(137 * attempt, BOTH[attempt // 2 % 2])
                outcomes = outcomes_or_nothing(sink, waiting)
                waiting = [one for one, each in zip(waiting, outcomes, strict=True) if each is not DELIVERED]
                if not waiting:
                    break
    assert waiting == []
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for each in elasticmq.take(queue):
        groups[each["Attributes"]["MessageGroupId"]].append(int(each["Body"]))
    assert groups == {f"k{key}": list(range(key, 400, 10)) for key in range(10)}
