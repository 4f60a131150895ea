"""What fits alone and not together, and what AWS refuses: the queue's limit is read, and nothing illegal leaves."""

from __future__ import annotations

import base64
import json

import pytest

from sinks.base import DELIVERED, Message, Reject
from sinks.sqs import client as sqs_client
from sinks.testing import message
from tests.servers.sqs_answers import Call, Fault
from tests.servers.sqs_rules import size
from tests.servers.sqs_stub import SqsStub
from tests.sqs_sinks import opened, send


def payload(count: int, letter: str = "x") -> bytes:
    """A JSON string of so many bytes."""
    width = len(letter.encode())
    return json.dumps(letter * ((count - 2) // width), ensure_ascii=False).encode()


def big(number: int, count: int, letter: str = "x") -> Message:
    return message(number, payload=payload(count, letter))


def test_messages_that_fit_alone_do_not_share_a_call_that_they_do_not_fit(sqs_stub: SqsStub) -> None:
    sqs_stub.limit = 262_144
    with opened(sqs_stub.client) as sink:
        outcomes = send(
            sink,
            [
                message(1),
                big(2, 200_000),
                big(3, 200_000),
                big(4, 262_145),
                big(5, 280_000, "é"),
                message(6, payload=payload(260_000), headers={"h": "x" * 5000}),
                message(7),
            ],
        )
    assert [type(outcome) for outcome in outcomes[3:6]] == [Reject] * 3
    assert outcomes[:3] + outcomes[6:] == [DELIVERED] * 4
    for outcome, count in zip(outcomes[3:6], (262_145, 280_000, 265_000), strict=True):
        assert isinstance(outcome, Reject)
        told, limit = (int(word.rstrip(",")) for word in outcome.reason.split() if word.rstrip(",").isdigit())
        assert limit == 262_144
        assert count < told < count + 300
    assert all(sum(map(size, call.entries)) <= 262_144 for call in sqs_stub.sends())
    assert len(sqs_stub.sends()) == 2


def test_same_messages_fit_a_queue_with_a_higher_limit(sqs_stub: SqsStub) -> None:
    sqs_stub.limit = 2**20
    messages = [big(2, 200_000), big(3, 200_000), big(4, 262_145), big(5, 280_000, "é")]
    with opened(sqs_stub.client) as sink:
        assert send(sink, messages) == [DELIVERED] * 4
    assert len(sqs_stub.sends()) == 1


def test_limit_is_asked_once_and_again_when_it_is_old(sqs_stub: SqsStub, monkeypatch: pytest.MonkeyPatch) -> None:
    sqs_stub.limit = 2000
    with opened(sqs_stub.client) as sink:
        for _ in range(3):
            assert isinstance(send(sink, [big(1, 3000)])[0], Reject)
        assert [call.operation for call in sqs_stub.calls] == ["GetQueueUrl", "GetQueueAttributes"]
    monkeypatch.setattr(sqs_client, "FRESH_S", -1.0)
    with opened(sqs_stub.client) as sink:
        assert isinstance(send(sink, [big(1, 3000)])[0], Reject)
        sqs_stub.limit = 4000
        assert send(sink, [big(1, 3000)]) == [DELIVERED]


def test_limit_that_was_lowered_rejects_the_message_and_is_asked_again(sqs_stub: SqsStub) -> None:
    with opened(sqs_stub.client) as sink:
        assert send(sink, [message(1)]) == [DELIVERED]
        sqs_stub.limit = 2000
        outcomes = send(sink, [message(2), big(3, 3000), message(4)])
        assert [type(outcome) for outcome in outcomes] == [type(DELIVERED), Reject, type(DELIVERED)]
        sqs_stub.calls.clear()
        assert isinstance(send(sink, [big(3, 3000)])[0], Reject)
    assert "SendMessageBatch" not in [call.operation for call in sqs_stub.calls]


@pytest.mark.parametrize(
    "fault", [Fault("AccessDenied", 403), Fault("InvalidAttributeName", 400), Fault("UnsupportedOperation", 400)]
)
def test_limit_that_may_not_be_read_is_the_service_s_own(sqs_stub: SqsStub, fault: Fault) -> None:
    def deny(call: Call) -> Fault | None:
        return fault if call.operation == "GetQueueAttributes" else None

    sqs_stub.on_question = deny
    with opened(sqs_stub.client) as sink:
        outcomes = send(sink, [big(1, 1_000_000), big(2, 2**20)])
    assert outcomes[0] is DELIVERED
    assert isinstance(outcomes[1], Reject)


def test_limit_that_is_configured_is_not_asked(sqs_stub: SqsStub) -> None:
    with opened(sqs_stub.client, size_limit="4KiB") as sink:
        outcomes = send(sink, [big(1, 3000), big(2, 3000), big(3, 5000)])
    assert [type(outcome) for outcome in outcomes] == [type(DELIVERED), type(DELIVERED), Reject]
    assert [call.operation for call in sqs_stub.calls] == ["GetQueueUrl", "SendMessageBatch", "SendMessageBatch"]


@pytest.mark.parametrize("queue", ["orders", "orders.fifo"])
def test_nothing_that_aws_refuses_leaves(sqs_stub: SqsStub, queue: str) -> None:
    messages = [
        message(1),
        message(2, payload=b'["\x01"]'),
        message(3, payload='["\uffff"]'.encode()),
        message(4, key="k" * 129),
        message(5),
        message(6, key="zoë 😀 x"),
        message(7, kind="a/b:c"),
        message(8, headers={f"header {number}": number for number in range(11)}),
        message(9),
        message(10),
    ]
    with opened(sqs_stub.client, queue=queue, group="{key}") as sink:
        assert send(sink, messages) == [DELIVERED] * 10
    assert len(sqs_stub.sends()) == 1
    entries = {entry["MessageAttributes"]["message_id"]["StringValue"]: entry for _, entry in sqs_stub.sent}
    for one in messages:
        entry = entries[str(one.message_id)]
        attributes = {name: value["StringValue"] for name, value in entry["MessageAttributes"].items()}
        body = entry["MessageBody"]
        assert (base64.b64decode(body) if "content-encoding" in attributes else body.encode()) == one.data
        assert json.loads(attributes.get("headers", "{}")) == one.headers
    assert [entry["Id"] for _, entry in sqs_stub.sent] == [str(number) for number in range(10)]


def test_bad_message_is_rejected_before_it_is_sent(sqs_stub: SqsStub) -> None:
    messages = [message(1), message(2, kind="\x01"), message(3, payload=None, body=b""), message(4)]
    with opened(sqs_stub.client) as sink:
        outcomes = send(sink, messages)
    assert [type(outcome) for outcome in outcomes] == [type(DELIVERED), Reject, Reject, type(DELIVERED)]
    assert len(sqs_stub.sends()) == 1
