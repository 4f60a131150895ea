"""What SQS's errors mean: the code decides, not the HTTP status."""

from __future__ import annotations

import pytest

from sinks.base import Hold, Outcome, Reject, Retry
from sinks.sqs.errors import Cause, Failed, Refused, describe, hold, outcome_of, refused_alone

ANY_STATUS = [400, 403, 404, 500, 503]


@pytest.mark.parametrize("status", ANY_STATUS)
@pytest.mark.parametrize(
    ("code", "cause", "destination"),
    [
        ("ExpiredToken", Cause.AUTH, None),
        ("ExpiredTokenException", Cause.AUTH, None),
        ("InvalidClientTokenId", Cause.AUTH, None),
        ("UnrecognizedClientException", Cause.AUTH, None),
        ("SignatureDoesNotMatch", Cause.AUTH, None),
        ("ThrottlingException", Cause.THROTTLED, None),
        ("Throttling", Cause.THROTTLED, None),
        ("RequestThrottled", Cause.QUEUE_THROTTLED, "orders"),
        ("AWS.SimpleQueueService.NonExistentQueue", Cause.MISSING, "orders"),
        ("com.amazonaws.sqs#QueueDoesNotExist", Cause.MISSING, "orders"),
        ("QueueDoesNotExist:http://internal.amazon.com/coral/com.amazonaws.sqs/", Cause.MISSING, "orders"),
        ("AWS.SimpleQueueService.QueueDeletedRecently", Cause.MISSING, "orders"),
        ("AccessDenied", Cause.DENIED, "orders"),
        ("AccessDeniedException", Cause.DENIED, "orders"),
        ("KmsAccessDenied", Cause.KEY, "orders"),
        ("KMS.AccessDeniedException", Cause.KEY, "orders"),
        ("KMS.ThrottlingException", Cause.KEY, "orders"),
        ("ServiceUnavailable", Cause.UNWELL, None),
        ("InternalFailure", Cause.UNWELL, None),
    ],
)
def test_code_decides_whatever_the_status(code: str, cause: Cause, destination: str | None, status: int) -> None:
    error = Refused(code, "text", status)
    assert error.cause is cause
    outcome = hold(error, "orders")
    assert outcome.destination == destination
    assert outcome.reason.startswith(f"{cause.value}: ")


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        (400, Cause.OTHER),
        (401, Cause.AUTH),
        (403, Cause.DENIED),
        (413, Cause.CONTENT),
        (429, Cause.THROTTLED),
        (500, Cause.UNWELL),
        (502, Cause.UNWELL),
        (503, Cause.UNWELL),
    ],
)
def test_status_decides_where_the_code_says_nothing(status: int, cause: Cause) -> None:
    assert Refused("NeverSeen", "", status).cause is cause
    assert Refused("", "", status).cause is cause


def test_refusal_of_an_unknown_kind_is_about_the_queue() -> None:
    assert hold(Refused("AWS.SimpleQueueService.UnsupportedOperation", "text"), "orders").destination == "orders"


def of_entry(code: str, *, sender_fault: bool, text: str = "text") -> Outcome:
    return outcome_of(Failed(code, text, sender_fault), "orders", 300, 200)


@pytest.mark.parametrize("sender_fault", [True, False])
@pytest.mark.parametrize("code", ["RequestThrottled", "ThrottlingException", "KMS.ThrottlingException", "AccessDenied"])
def test_entry_that_failed_for_its_queue_is_held_whoever_is_blamed(code: str, sender_fault: bool) -> None:
    outcome = of_entry(code, sender_fault=sender_fault)
    assert isinstance(outcome, Hold)
    assert outcome.destination == "orders"


@pytest.mark.parametrize("code", ["InternalError", "ServiceUnavailable", "InvalidParameterValue", "NeverSeen"])
def test_entry_that_the_service_failed_is_held(code: str) -> None:
    outcome = of_entry(code, sender_fault=False)
    assert isinstance(outcome, Hold)
    assert outcome.destination == "orders"


def test_entry_whose_content_can_never_be_taken_is_rejected() -> None:
    assert isinstance(of_entry("InvalidMessageContents", sender_fault=True), Reject)
    text = "One or more parameters are invalid. Reason: Message must be shorter than 200 bytes."
    outcome = of_entry("InvalidParameterValue", sender_fault=True, text=text)
    assert isinstance(outcome, Reject)
    assert outcome.reason.startswith("too large: 300 bytes, limit 200: ")


@pytest.mark.parametrize("code", ["InvalidParameterValue", "MissingParameter", "NeverSeen"])
def test_blame_alone_kills_no_message(code: str) -> None:
    text = "The request include parameter that is not valid for this queue type"
    assert isinstance(of_entry(code, sender_fault=True, text=text), Retry)


def test_content_refused_alone() -> None:
    assert refused_alone(Refused("BatchRequestTooLong", "x"), 300, 200) == Reject(
        "too large: 300 bytes, limit 200: BatchRequestTooLong: x"
    )
    assert isinstance(refused_alone(Refused("InvalidMessageContents", "x"), 300, 200), Reject)
    assert isinstance(refused_alone(Refused("InvalidParameterValue", "x"), 300, 200), Retry)


def test_reason_is_one_line_of_bounded_length() -> None:
    assert describe("", "a\n b", "c" * 1000) == "a b: " + "c" * 295
