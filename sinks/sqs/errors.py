"""What SQS says, in the relay's words: the one place where its error codes are read.

The code decides, not the HTTP status: the same refusal has come with 400, 403, 500 and 503. Codes are those of the
service model (botocore `sqs/2012-11-05/service-2.json`), of AWS's list of common errors, and of botocore's own list of
throttling errors (`botocore/retries/standard.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from sinks.base import Delivered, Hold, Outcome, Reject, Retry

WAITS: Final = Retry("not sent: an earlier message of its key was not delivered")
NO_TIME: Final = Retry("not sent: no time was left", counted=False)
NOT_SPOKEN_OF: Final = Retry("the answer does not speak of it, it may have arrived", counted=False)


class SqsError(Exception):
    """A call that did not end well. The text is one line for a person."""


class NotSent(SqsError):
    """Nothing left this machine: no connection, no name, no endpoint."""


class Unanswered(SqsError):
    """The request may have been carried out: a time-out, a cut connection, an answer that makes no sense."""


class Refused(SqsError):
    """SQS answered with an error."""

    def __init__(self, code: str, text: str, status: int = 400) -> None:
        bare = code.rpartition("#")[2].partition(":")[0]
        self.code = "Kms" + bare[4:] if bare.startswith("KMS.") else bare.rpartition(".")[2]
        self.cause = cause_of(self.code, status)
        super().__init__(describe(self.code, text))


class Cause(Enum):
    """Why a call was refused; the value begins the reason."""

    AUTH = "auth"
    THROTTLED = "throttled"
    QUEUE_THROTTLED = "queue throttled"
    MISSING = "queue missing"
    DENIED = "denied"
    KEY = "encryption key"
    CONTENT = "content"
    UNWELL = "service unwell"
    OTHER = "refused"


ACCOUNT_WIDE = frozenset({Cause.AUTH, Cause.THROTTLED, Cause.UNWELL})
"""What stands in the way of every queue, not of one."""

_CODES = {
    Cause.AUTH: (
        "ExpiredToken ExpiredTokenException RequestExpired InvalidClientTokenId UnrecognizedClientException "
        "InvalidAccessKeyId InvalidToken SignatureDoesNotMatch InvalidSignatureException IncompleteSignature "
        "IncompleteSignatureException MissingAuthenticationToken MissingAuthenticationTokenException "
        "AuthFailure NotAuthorized OptInRequired RequestTimeTooSkewed "
        "InvalidSecurity NoCredentials"
    ),
    Cause.THROTTLED: (
        "Throttling ThrottlingException ThrottledException RequestThrottledException TooManyRequestsException "
        "RequestLimitExceeded BandwidthLimitExceeded LimitExceededException SlowDown PriorRequestNotComplete"
    ),
    Cause.QUEUE_THROTTLED: "RequestThrottled OverLimit",
    Cause.MISSING: "NonExistentQueue QueueDoesNotExist QueueDeletedRecently InvalidAddress ResourceNotFoundException",
    Cause.DENIED: "AccessDenied AccessDeniedException AuthorizationError UnauthorizedOperation Forbidden",
    Cause.CONTENT: (
        "InvalidMessageContents BatchRequestTooLong RequestEntityTooLarge RequestEntityTooLargeException "
        "InvalidParameterValue InvalidParameterValueException InvalidParameterCombination InvalidAttributeValue "
        "ValidationError ValidationException SerializationException MalformedQueryString"
    ),
    Cause.UNWELL: (
        "InternalError InternalFailure InternalServerError InternalServerException ServiceUnavailable "
        "ServiceUnavailableException RequestTimeout RequestTimeoutException RequestAbortedException"
    ),
}
_CAUSE = {code: cause for cause, codes in _CODES.items() for code in codes.split()}

_CAUSE_OF_STATUS = {401: Cause.AUTH, 403: Cause.DENIED, 408: Cause.UNWELL, 413: Cause.CONTENT, 429: Cause.THROTTLED}

_NEVER_TAKEN = frozenset({"InvalidMessageContents", "InvalidAttributeValue"})
_TOO_LARGE = frozenset({"BatchRequestTooLong", "RequestEntityTooLarge", "RequestEntityTooLargeException"})


def describe(*parts: str) -> str:
    """One line without line ends and of bounded length."""
    return " ".join(": ".join(part for part in parts if part).split())[:300]


def cause_of(code: str, status: int) -> Cause:
    """Why SQS refused; `code` without its namespace, `status` only where the code says nothing."""
    known = _CAUSE.get(code)
    if known is not None:
        return known
    if code.startswith("Kms"):
        return Cause.KEY
    return _CAUSE_OF_STATUS.get(status, Cause.UNWELL if status >= 500 else Cause.OTHER)


def hold(error: Refused, queue: str) -> Hold:
    """The outcome of every message that a refusal stands in the way of."""
    return Hold(describe(error.cause.value, str(error)), None if error.cause in ACCOUNT_WIDE else queue)


def refused_alone(error: Refused, size: int, limit: int) -> Outcome:
    """The outcome of a message that was the only one of its call, refused for its content.

    Args:
        size: the message's, in bytes.
        limit: of the queue, in bytes, as far as it is known.
    """
    if error.code in _TOO_LARGE:
        return too_large(size, limit, str(error))
    return Reject(str(error)) if error.code in _NEVER_TAKEN else Retry(str(error))


def too_large(size: int, limit: int, said: str = "") -> Reject:
    """
    Args:
        size, limit: bytes.
        said: what SQS said, where it was asked.
    """
    return Reject(describe(f"too large: {size} bytes, limit {limit}", said))


class Failed(NamedTuple):
    """What an answer says of one message that was not taken (`BatchResultErrorEntry`)."""

    code: str
    text: str
    sender_fault: bool

    @classmethod
    def told(cls, entry: Mapping[str, Any]) -> Failed:
        """From the answer's own words."""
        return cls(str(entry.get("Code")), str(entry.get("Message", "")), bool(entry.get("SenderFault")))


def told(answer: Mapping[str, Any]) -> tuple[set[str], dict[str, Failed]]:
    """The ids of entries that were taken, and what an answer says of those that were not."""
    taken = {str(entry.get("Id")) for entry in answer.get("Successful") or ()}
    return taken, {str(entry.get("Id")): Failed.told(entry) for entry in answer.get("Failed") or ()}


def failed_inside(failed: Failed) -> bool:
    """Whether the service failed with this message for no reason that it names."""
    cause = Refused(failed.code, failed.text).cause
    return cause is Cause.UNWELL or (cause in (Cause.CONTENT, Cause.OTHER) and not failed.sender_fault)


def outcome_of(failed: Failed, queue: str, size: int, limit: int) -> Outcome:
    """The outcome of one message that SQS did not take while it answered the call.

    `SenderFault` alone proves little: throttling and a misconfigured queue come with it too.

    Args:
        size, limit: bytes, of the message and of the queue.
    """
    error = Refused(failed.code, failed.text)
    if error.cause not in (Cause.CONTENT, Cause.OTHER):
        # The call went through, so whatever is unwell, it is not the account.
        return Hold(describe(error.cause.value, str(error)), queue)
    if not failed.sender_fault:
        return Hold(describe(Cause.UNWELL.value, str(error)), queue)
    if "must be shorter than" in failed.text:
        return too_large(size, limit, str(error))
    return refused_alone(error, size, limit)


def known(outcome: Outcome) -> bool:
    """Whether this says something that the next time could not say as well."""
    return isinstance(outcome, (Delivered, Reject)) or (
        isinstance(outcome, Retry) and outcome.counted and outcome is not WAITS
    )
