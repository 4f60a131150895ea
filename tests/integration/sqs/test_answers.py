"""The SQS sink against a service that gives every bad answer, by either way of sending."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest

from sinks.base import DELIVERED, Batch, Hold, Reject, Retry, SinkUnavailable
from sinks.sqs.errors import WAITS
from sinks.sqs.trouble import Pace
from sinks.testing import message
from tests.servers.base import free_port, wait_until
from tests.servers.sqs_answers import Call, Cut, Failures, Fault, Raw, Silence, Slow
from tests.servers.sqs_stub import SqsStub
from tests.sqs_sinks import once, only_boto3, opened, send, unavailable

NONEXISTENT = "AWS.SimpleQueueService.NonExistentQueue"


@pytest.fixture(params=["awscrt", "boto3"], autouse=True)
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "boto3":
        only_boto3(monkeypatch)


@contextmanager
def in_less_than(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


@pytest.mark.parametrize(
    ("fault", "begins", "destination"),
    [
        (Fault("ThrottlingException", 400), "throttled: ", None),
        (Fault("ThrottlingException", 503), "throttled: ", None),
        (Fault("RequestThrottled", 403), "queue throttled: ", "orders"),
        (Fault("ExpiredToken", 403), "auth: ", None),
        (Fault("ExpiredTokenException", 400), "auth: ", None),
        (Fault("AccessDenied", 403, shape="AccessDeniedException"), "denied: ", "orders"),
        (Fault("AccessDeniedException", 500), "denied: ", "orders"),
        (Fault(NONEXISTENT, 400, shape="QueueDoesNotExist"), "queue missing: ", "orders"),
        (Fault(NONEXISTENT, 500), "queue missing: ", "orders"),
        (Fault("KMS.DisabledException", 400, shape="KmsDisabled"), "encryption key: ", "orders"),
        (Fault("UnsupportedOperation", 400), "refused: ", "orders"),
    ],
)
def test_refusal_is_no_message_s_fault_and_ends_by_itself(
    sqs_stub: SqsStub, fault: Fault, begins: str, destination: str | None
) -> None:
    messages = [message(number) for number in range(25)]
    with opened(sqs_stub.client) as sink:
        sqs_stub.on_send = lambda call: fault
        outcomes = send(sink, messages)
        assert len(outcomes) == 25
        for outcome in outcomes:
            assert isinstance(outcome, Hold)
            assert outcome.reason.startswith(begins)
            assert outcome.destination == destination
        sqs_stub.on_send = lambda call: None
        assert send(sink, messages) == [DELIVERED] * 25


def test_refused_queue_or_account_is_not_asked_for_every_message(sqs_stub: SqsStub) -> None:
    for fault in (Fault("ThrottlingException"), Fault("AccessDenied")):
        sqs_stub.calls.clear()
        sqs_stub.on_send = lambda call, fault=fault: fault  # type: ignore[misc]
        with opened(sqs_stub.client, in_flight=2) as sink:
            send(sink, [message(number) for number in range(500)])
        assert len(sqs_stub.sends()) <= 4


def test_one_missing_queue_stops_no_other(sqs_stub: SqsStub) -> None:
    messages = [message(number, kind="ab"[number % 2]) for number in range(40)]
    sqs_stub.on_question = lambda call: Fault(NONEXISTENT, 400) if call.queue == "a" else None
    with opened(sqs_stub.client, queue="{kind}") as sink:
        outcomes = send(sink, messages)
    assert outcomes[1::2] == [DELIVERED] * 20
    assert {outcome.destination for outcome in outcomes[::2] if isinstance(outcome, Hold)} == {"a"}
    assert len(sqs_stub.sent) == 20


def test_each_entry_has_its_own_outcome(sqs_stub: SqsStub) -> None:
    sqs_stub.on_send = lambda call: Failures(
        {
            1: ("InvalidMessageContents", True),
            3: ("InternalError", False),
            5: ("InvalidParameterValue", True),
            7: ("RequestThrottled", True),
        }
    )
    with opened(sqs_stub.client) as sink:
        outcomes = send(sink, [message(number) for number in range(10)])
    assert [type(outcome) for outcome in outcomes[1::2]] == [Reject, Retry, Retry, Hold, type(DELIVERED)]
    assert outcomes[::2] == [DELIVERED] * 5
    assert [outcome.counted for outcome in outcomes if isinstance(outcome, Retry)] == [False, True]
    assert len(sqs_stub.sent) == 6


def test_queue_of_which_every_entry_fails_inside_the_service_is_held(sqs_stub: SqsStub) -> None:
    sqs_stub.on_send = lambda call: Failures(dict.fromkeys(range(len(call.entries)), ("InternalError", False)))
    with opened(sqs_stub.client) as sink:
        outcomes = send(sink, [message(number) for number in range(20)])
    assert {outcome.destination for outcome in outcomes if isinstance(outcome, Hold)} == {"orders"}
    assert len(outcomes) == sum(isinstance(outcome, Hold) for outcome in outcomes)


def test_entry_that_the_service_failed_waits_longer_the_older_its_message_is(sqs_stub: SqsStub) -> None:
    sqs_stub.on_send = lambda call: Failures({0: ("InternalError", False), 1: ("InternalError", False)})
    now_us = message(0).created_us
    messages = [message(number, created_us=now_us - age * 1_000_000) for number, age in enumerate((0, 100, 0))]
    with opened(sqs_stub.client) as sink:
        outcomes = list(sink.send(Batch(uuid4(), messages, now_us)))
    assert [outcome.after for outcome in outcomes if isinstance(outcome, Retry)] == [1.0, 10.0]


@pytest.mark.parametrize("code", ["RequestThrottled", "AccessDenied", "KmsThrottled", "ThrottlingException"])
def test_first_entry_that_is_refused_for_its_queue_stops_the_queue(sqs_stub: SqsStub, code: str) -> None:
    """As a refused call does. An entry can be refused for a key of KMS or by a policy as well."""
    sqs_stub.on_send = lambda call: Failures({0: (code, True)}) if call.queue == "orders" else None
    with opened(sqs_stub.client, queue="{header.queue:orders}") as sink:
        others = [message(1000 + number, headers={"queue": "others"}) for number in range(100)]
        outcomes = send(sink, [*(message(number) for number in range(500)), *others])
        calls = [call.queue for call in sqs_stub.sends()]
        assert calls.count("orders") == 1
        assert calls.count("others") == 10
        assert sum(isinstance(outcome, Hold) for outcome in outcomes) == 491
        sqs_stub.on_send = lambda call: Slow(0.05)
        send(sink, [message(number) for number in range(2000, 2100)])
        assert sqs_stub.most_at_once <= 8


def test_calls_of_a_queue_grow_by_one_a_round_after_it_was_throttled() -> None:
    pace = Pace(8)
    for _ in range(7):
        pace.took()
    assert pace.calls == 8
    for calls in (4, 2, 1, 1):
        pace.throttled()
        assert pace.calls == calls
    for calls in (2, 2, 3, 3, 3, 4):
        pace.took()
        assert pace.calls in (calls, calls - 1)
    assert pace.calls <= 4


def test_entries_that_nobody_sent_are_logged(sqs_stub: SqsStub, caplog: pytest.LogCaptureFixture) -> None:
    answer = {"Successful": [{"Id": "0", "MessageId": "m", "MD5OfMessageBody": ""}, {"Id": "77", "MessageId": "n"}]}
    body = json.dumps(answer).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: %d\r\n\r\n" % len(body)
    sqs_stub.on_send = lambda call: Raw(head + body)
    with opened(sqs_stub.client) as sink:
        outcomes = send(sink, [message(0), message(1)])
    assert outcomes[0] is DELIVERED
    assert isinstance(outcomes[1], Retry)
    assert not outcomes[1].counted
    assert "queue orders: the answer speaks of 1 entries that nobody sent" in caplog.text


def test_entry_that_the_answer_forgets_is_not_delivered(sqs_stub: SqsStub) -> None:
    sqs_stub.on_send = lambda call: Silence(frozenset({2}))
    with opened(sqs_stub.client) as sink:
        outcomes = send(sink, [message(number) for number in range(4)])
    assert [outcome is DELIVERED for outcome in outcomes] == [True, True, False, True]
    assert isinstance(outcomes[2], Retry)
    assert not outcomes[2].counted


@pytest.mark.parametrize(
    ("code", "kind"),
    [("BatchRequestTooLong", Reject), ("InvalidMessageContents", Reject), ("InvalidParameterValue", Retry)],
)
def test_message_that_gets_its_call_refused_takes_no_neighbour_with_it(
    sqs_stub: SqsStub, code: str, kind: type
) -> None:
    def refuse(call: Call) -> Fault | None:
        bad = any(entry["MessageBody"] == '["bad"]' for entry in call.entries)
        return Fault(f"AWS.SimpleQueueService.{code}") if bad else None

    sqs_stub.on_send = refuse
    messages = [message(number) for number in range(30)]
    messages[13] = message(13, payload=b'["bad"]')
    with opened(sqs_stub.client) as sink:
        outcomes = send(sink, messages)
    assert isinstance(outcomes.pop(13), kind)
    assert outcomes == [DELIVERED] * 29
    assert len(sqs_stub.sent) == 29


@pytest.mark.parametrize("options", [{}, {"queue": "http://127.0.0.1/1/orders", "size_limit": 2000}])
def test_refused_connection_is_known(sqs_stub: SqsStub, options: dict[str, Any]) -> None:
    nobody = {**sqs_stub.client, "endpoint_url": f"http://127.0.0.1:{free_port()}"}
    with opened(nobody, **options) as sink:
        assert unavailable(sink, [message(1)]).unknown is False


def test_unknown_host_is_known(sqs_stub: SqsStub) -> None:
    nowhere = {**sqs_stub.client, "endpoint_url": "http://no-such-host.invalid"}
    with opened(nowhere, queue="https://no-such-host.invalid/1/orders", size_limit=2000) as sink:
        assert unavailable(sink, [message(1)]).unknown is False


@pytest.mark.parametrize(
    "answer",
    [
        Cut(),
        Cut(taken=True),
        Cut(taken=True, half=True),
        Raw(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"),
        Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n<html/>\n"),
        Fault("InternalFailure", 500),
        Fault("", 502),
    ],
)
def test_request_without_an_answer_is_unknown(sqs_stub: SqsStub, answer: Cut | Raw | Fault) -> None:
    with opened(sqs_stub.client) as sink:
        sqs_stub.on_send = lambda call: answer
        assert unavailable(sink, [message(1)]).unknown is True
        sqs_stub.on_send = lambda call: None
        assert send(sink, [message(1)]) == [DELIVERED]


def test_cut_call_does_not_hide_what_others_delivered(sqs_stub: SqsStub) -> None:
    sqs_stub.on_send = once(Cut())
    with opened(sqs_stub.client, in_flight=1) as sink:
        outcomes = send(sink, [message(number) for number in range(30)])
    assert outcomes[10:] == [DELIVERED] * 20
    assert {type(outcome) for outcome in outcomes[:10]} == {Hold}


def test_late_answer_ends_in_time_and_is_unknown(sqs_stub: SqsStub) -> None:
    one = message(1, key="k")
    with opened(sqs_stub.client, queue="orders.fifo", send_timeout=0.6) as sink:
        assert send(sink, [message(0)]) == [DELIVERED]
        sqs_stub.on_send = once(Slow(6.0))
        with in_less_than(5.0):
            assert unavailable(sink, [one]).unknown is True
        # The call that hangs holds up no other, and what it brings at last is no second copy.
        with in_less_than(5.0):
            assert send(sink, [message(2), one]) == [DELIVERED] * 2
    wait_until(lambda: len(sqs_stub.taken) == 4)
    assert sorted(sqs_stub.bodies()) == sorted(f'[{number}, "payload"]' for number in range(3))


def test_slow_service_gets_as_much_as_fits_into_the_time(sqs_stub: SqsStub) -> None:
    sqs_stub.on_send = lambda call: Slow(0.2)
    with opened(sqs_stub.client, in_flight=1, send_timeout=1.0) as sink:
        outcomes = send(sink, [message(number) for number in range(200)])
    assert len(sqs_stub.sent) == outcomes.count(DELIVERED) >= 10
    assert set(outcomes[len(sqs_stub.sent) :]) == {Retry("not sent: no time was left", counted=False)}


def test_slow_questions_end_in_time_and_nothing_was_sent(sqs_stub: SqsStub) -> None:
    sqs_stub.on_question = lambda call: Slow(6.0)
    with opened(sqs_stub.client, send_timeout=1.0) as sink, in_less_than(5.0):
        assert unavailable(sink, [message(1)]).unknown is False


def test_lost_claim_sends_nothing_more(sqs_stub: SqsStub) -> None:
    answers = [False, True]
    with opened(sqs_stub.client, in_flight=1) as sink:
        outcomes = send(sink, [message(number) for number in range(50)], lost=lambda: answers.pop(0) or answers != [])
    assert len(outcomes) == 50
    assert len(sqs_stub.sent) <= 10


def test_calls_in_flight_are_several_and_bounded(sqs_stub: SqsStub) -> None:
    sqs_stub.on_send = lambda call: Slow(0.05)
    with opened(sqs_stub.client, in_flight=3) as sink:
        assert send(sink, [message(number) for number in range(200)]) == [DELIVERED] * 200
    assert sqs_stub.most_at_once == 3


def test_answer_that_says_not_where_it_ends_is_understood(sqs_stub: SqsStub) -> None:
    body = b'{"Successful": [{"Id": "0", "MessageId": "m"}]}'
    sqs_stub.on_send = lambda call: Raw(b"HTTP/1.0 200 OK\r\n\r\n" + body)
    with opened(sqs_stub.client) as sink:
        # One way of sending has to learn that this service needs the other.
        with contextlib.suppress(SinkUnavailable):
            send(sink, [message(1)])
        assert send(sink, [message(1)]) == [DELIVERED]


def test_wait_for_an_earlier_message_is_no_failure(sqs_stub: SqsStub) -> None:
    sqs_stub.on_send = lambda call: Failures({0: ("InternalError", False)})
    with opened(sqs_stub.client, queue="orders.fifo", ordered=True) as sink:
        outcomes = send(sink, [message(number, key="k") for number in range(4)])
    assert isinstance(outcomes[0], Hold)
    assert outcomes[1:] == [WAITS] * 3
    assert len(sqs_stub.sends()) == 1
