"""From the table into SQS: a whole relay before a service that fails in every way."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pytest

from tests.harness.outbox import Outbox
from tests.servers.sqs_answers import Answer, Call, Cut, Failures, Fault
from tests.servers.sqs_stub import SqsStub

pytestmark = pytest.mark.full


def sink(stub: SqsStub, **keys: Any) -> dict[str, dict[str, Any]]:
    return {"main": {"type": "sqs", "queue": "orders", "client": stub.client, **keys}}


def test_every_fault_at_once_loses_nothing_and_keeps_the_order(outbox: Outbox, sqs_stub: SqsStub) -> None:
    chance = random.Random(1)
    faults: list[Answer] = [
        Cut(),
        Cut(taken=True),
        Fault("ThrottlingException"),
        Fault("ExpiredToken", 403),
        Fault("InternalFailure", 500),
        Failures({0: ("InternalError", False)}),
    ]
    sqs_stub.on_send = lambda call: chance.choice(faults) if chance.random() < 0.1 else None
    outbox.configure(sink(sqs_stub, queue="orders.fifo", order="key", shards=4))
    outbox.sql(
        "insert into relay.outbox (kind, key, payload) "
        "select 'made', 'k' || n % 10, to_json(n) from generate_series(0, 199) n"
    )
    with outbox.relay(wait=False):
        outbox.wait_until_empty(timeout=60)
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for _, entry in sqs_stub.sent:
        groups[entry["MessageGroupId"]].append(int(entry["MessageBody"]))
    assert groups == {f"k{key}": list(range(key, 200, 10)) for key in range(10)}
    assert outbox.count(table="dead") == 0


def test_refusal_costs_no_attempt(outbox: Outbox, sqs_stub: SqsStub) -> None:
    refused: list[Call] = []

    def refuse(call: Call) -> Fault | None:
        if len(refused) >= 2:
            return None
        refused.append(call)
        return Fault("ExpiredTokenException", 400)

    sqs_stub.on_send = refuse
    outbox.configure(sink(sqs_stub, max_attempts=1))
    outbox.insert(5)
    with outbox.relay(wait=False):
        outbox.wait_until_empty()
    assert len(refused) == 2
    assert outbox.count(table="dead") == 0
    assert len(sqs_stub.sent) == 5


def test_bad_message_dies_and_its_neighbours_arrive(outbox: Outbox, sqs_stub: SqsStub) -> None:
    sqs_stub.limit = 2000
    outbox.configure(sink(sqs_stub))
    outbox.insert(3)
    outbox.insert(1, payload='"' + "x" * 3000 + '"')
    outbox.insert(3)
    with outbox.relay(wait=False):
        outbox.wait_until_empty()
    assert len(sqs_stub.sent) == 6
    ((error,),) = outbox.sql("select error from relay.dead")
    assert "too large: 3" in error
    assert "limit 2000" in error


def test_short_schedule_is_handed_to_the_queue(outbox: Outbox, sqs_stub: SqsStub) -> None:
    outbox.configure(sink(sqs_stub, schedule="sqs"))
    outbox.sql("insert into relay.outbox (kind, payload, run_at) values ('made', '1', now() + interval '5 minutes')")
    with outbox.relay(wait=False):
        outbox.wait_until_empty()
    ((_, entry),) = sqs_stub.sent
    assert 290 <= entry["DelaySeconds"] <= 300
