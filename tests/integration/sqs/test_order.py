"""Order by key into FIFO queues, whatever fails on the way."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from sinks.base import DELIVERED, Message
from sinks.testing import message
from tests.servers.sqs_answers import Answer, Call, Cut, Failures, Fault, Slow
from tests.servers.sqs_stub import SqsStub
from tests.sqs_sinks import opened, outcomes_or_nothing, send


def numbered(count: int, keys: int) -> list[Message]:
    return [message(n, key=f"k{n % keys}", payload=b"%d" % n) for n in range(count)]


def by_group(stub: SqsStub) -> dict[str, list[int]]:
    found: defaultdict[str, list[int]] = defaultdict(list)
    for _, entry in stub.sent:
        found[entry["MessageGroupId"]].append(int(entry["MessageBody"]))
    return found


@pytest.mark.parametrize("ordered", [True, False])
def test_groups_keep_their_order_with_many_calls_in_flight(sqs_stub: SqsStub, ordered: bool) -> None:
    sqs_stub.on_send = lambda call: Slow(0.005)
    messages = numbered(300, 12)
    with opened(sqs_stub.client, queue="orders.fifo", ordered=ordered) as sink:
        assert send(sink, messages) == [DELIVERED] * 300
    assert all(group == sorted(group) for group in by_group(sqs_stub).values())
    assert sqs_stub.most_at_once > 1
    together = [
        len({entry["MessageGroupId"] for entry in call.entries}) == len(call.entries) for call in sqs_stub.sends()
    ]
    assert all(together) is ordered


@pytest.mark.parametrize("seed", range(4))
def test_key_stops_at_its_first_failure_and_goes_on_from_there(sqs_stub: SqsStub, seed: int) -> None:
    chance = random.Random(seed)

    def some_fail(call: Call) -> Answer | None:
        if chance.random() < 0.05:
            answers: list[Answer] = [
                Cut(),
                Cut(taken=True),
                Fault("InternalFailure", 500),
                Fault("InvalidMessageContents"),
            ]
            return chance.choice(answers)
        bad = {n: ("InternalError", False) for n in range(len(call.entries)) if chance.random() < 0.1}
        return Failures(bad) if bad else None

    sqs_stub.on_send = some_fail
    waiting = numbered(150, 5)
    with opened(sqs_stub.client, queue="orders.fifo", ordered=True, in_flight=3) as sink:
        for _ in range(400):
            outcomes = outcomes_or_nothing(sink, waiting)
            failed = {one.key for one, outcome in zip(waiting, outcomes, strict=True) if outcome is not DELIVERED}
            for key in failed:
                of_key = [o is DELIVERED for one, o in zip(waiting, outcomes, strict=True) if one.key == key]
                assert of_key == sorted(of_key, reverse=True), "a later message overtook one that failed"
            waiting = [one for one, outcome in zip(waiting, outcomes, strict=True) if outcome is not DELIVERED]
            if not waiting:
                break
    assert waiting == []
    assert by_group(sqs_stub) == {f"k{key}": list(range(key, 150, 5)) for key in range(5)}


def test_message_without_key_waits_for_none(sqs_stub: SqsStub) -> None:
    sqs_stub.on_send = lambda call: Failures({0: ("InternalError", False)})
    with opened(sqs_stub.client, queue="orders.fifo", ordered=True, in_flight=1) as sink:
        outcomes = send(sink, [message(number) for number in range(20)])
    assert [outcome is DELIVERED for outcome in outcomes] == ([False] + [True] * 9) * 2
    assert len({entry["MessageGroupId"] for _, entry in sqs_stub.sent}) == 18


def test_rejected_message_stops_its_key_and_no_other(sqs_stub: SqsStub) -> None:
    messages = [message(1, key="a"), message(2, key="a", kind="\x01"), message(3, key="a"), message(4, key="b")]
    with opened(sqs_stub.client, queue="orders.fifo", ordered=True) as sink:
        outcomes = send(sink, messages)
    assert [outcome is DELIVERED for outcome in outcomes] == [True, False, False, True]


def test_key_over_several_queues_stops_at_its_first_failure(sqs_stub: SqsStub) -> None:
    sqs_stub.on_send = lambda call: Fault("AccessDenied", 403) if call.queue == "a.fifo" else None
    messages = [message(n, key="k", kind="ab"[n == 2]) for n in range(4)]
    messages.append(message(9, key="other", kind="b"))
    with opened(sqs_stub.client, queue="{kind}.fifo", ordered=True) as sink:
        outcomes = send(sink, messages)
    assert [outcome is DELIVERED for outcome in outcomes] == [False, False, False, False, True]
    assert sqs_stub.bodies() == ['[9, "payload"]']


def test_standard_queue_hands_a_key_over_in_order(sqs_stub: SqsStub) -> None:
    with opened(sqs_stub.client, ordered=True) as sink:
        assert send(sink, numbered(60, 3)) == [DELIVERED] * 60
    found: defaultdict[int, list[int]] = defaultdict(list)
    for body in map(int, sqs_stub.bodies()):
        found[body % 3].append(body)
    assert all(of_key == sorted(of_key) for of_key in found.values())


def test_second_copy_into_a_fifo_queue_is_no_second_message(sqs_stub: SqsStub) -> None:
    messages = numbered(20, 4)
    with opened(sqs_stub.client, queue="orders.fifo") as sink:
        for _ in range(2):
            assert send(sink, messages) == [DELIVERED] * 20
    assert len(sqs_stub.taken) == 40
    assert len(sqs_stub.sent) == 20
