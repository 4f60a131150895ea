"""What Kafka and librdkafka say, in the relay's words: the one place where their error codes are read.

All codes are in `rdkafka.h` of librdkafka; a leading underscore marks those that it makes itself. What a code says of
a whole batch of records was seen with librdkafka 2.16 and Apache Kafka 4.1.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any, Final

from sinks.base import Hold, Outcome, Reject, Retry


class Meaning(Enum):
    """What an error says about a message."""

    SUSPECT = auto()
    """Some message of the record batch that it travelled in is unfit. Which one shows when each travels alone."""
    AGAIN = auto()
    """The producer gave up for reasons of its own. A new one may send the message again under the same id."""
    UNKNOWN = auto()
    """It may have arrived all the same."""
    CLUSTER = auto()
    """The whole cluster is unwell, or does not let us in."""
    TOPIC = auto()
    """The topic is missing, denied, throttled or short of replicas."""


_SUSPECT = (
    "MSG_SIZE_TOO_LARGE RECORD_LIST_TOO_LARGE INVALID_RECORD INVALID_TIMESTAMP INVALID_MSG _INVALID_DIFFERENT_RECORD"
)
_AGAIN = (
    "_FATAL _PURGE_QUEUE _GAPLESS_GUARANTEE _STATE _FENCED _RETRY PRODUCER_FENCED TRANSACTION_ABORTABLE "
    "OUT_OF_ORDER_SEQUENCE_NUMBER DUPLICATE_SEQUENCE_NUMBER UNKNOWN_PRODUCER_ID INVALID_PRODUCER_EPOCH "
    "INVALID_PRODUCER_ID_MAPPING INVALID_TXN_STATE"
)
# `_DESTROY` is said of messages for a topic that was just deleted, too.
_UNKNOWN = (
    "_DESTROY _MSG_TIMED_OUT _TIMED_OUT _TIMED_OUT_QUEUE _PURGE_INFLIGHT _TRANSPORT REQUEST_TIMED_OUT NETWORK_EXCEPTION"
)
_DENIED = (
    "_AUTHENTICATION SASL_AUTHENTICATION_FAILED UNSUPPORTED_SASL_MECHANISM ILLEGAL_SASL_STATE "
    "CLUSTER_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
)
_CLUSTER = "_SSL _RESOLVE _ALL_BROKERS_DOWN UNSUPPORTED_VERSION INVALID_TRANSACTION_TIMEOUT " + _DENIED

_MEANINGS = {
    name: meaning
    for meaning, names in (
        (Meaning.SUSPECT, _SUSPECT),
        (Meaning.AGAIN, _AGAIN),
        (Meaning.UNKNOWN, _UNKNOWN),
        (Meaning.CLUSTER, _CLUSTER),
    )
    for name in names.split()
}

_NAMES_OF_DENIED = frozenset(_DENIED.split())
_MISSING = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "LEADER_NOT_AVAILABLE"})
_TOO_LARGE = frozenset({"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"})
_HELP = {
    "UNKNOWN_TOPIC_OR_PART": "the topic does not exist",
    "_UNKNOWN_TOPIC": "the topic does not exist",
    "TOPIC_AUTHORIZATION_FAILED": "not authorized to write to the topic",
    "CLUSTER_AUTHORIZATION_FAILED": "not authorized to write to any topic (or IDEMPOTENT_WRITE is missing)",
}
NO_KEY: Final = "the message has no key, and a compacted topic (cleanup.policy=compact) takes only messages with one"


def error_of(exception: BaseException) -> Any:
    """The `KafkaError` inside a `KafkaException`."""
    return exception.args[0]


def meaning(error: Any) -> Meaning:
    """What a `KafkaError` says about the message that it was reported for."""
    return _MEANINGS.get(error.name(), Meaning.AGAIN if error.fatal() else Meaning.TOPIC)


def denied(error: Any) -> bool:
    """Whether this client is not let in, by its credentials or its rights."""
    return error.name() in _NAMES_OF_DENIED


def too_large(error: Any) -> bool:
    """Whether a record batch, or its only message, has too many bytes."""
    return error.name() in _TOO_LARGE


def missing(error: Any) -> bool:
    """Whether the topic is not there, or not yet."""
    return error.name() in _MISSING


def describe(error: Any) -> str:
    """One line for a person, without line ends and of bounded length. Holds none of a message's data."""
    name = error.name()
    text = _HELP.get(name) or error.str()
    return " ".join(f"{text} ({name})".split())[:300]


def outcome_alone(error: Any, topic: str, size: int, limit: str, *, has_key: bool = True) -> Outcome:
    """The outcome of a message that was refused although it travelled alone.

    Args:
        size: bytes of its key, value and headers.
        limit: what is known of how many bytes the topic takes.
    """
    if too_large(error):
        return reject(size, f"topic {topic} takes {limit}")
    reason = f"topic {topic}: {describe(error)}"
    if error.name() != "INVALID_RECORD":
        return Retry(reason)
    return Reject(reason if has_key else f"{reason}: {NO_KEY}")


def reject(size: int, limit: str) -> Reject:
    """The outcome of a message that is larger than somebody takes."""
    return Reject(f"too large: {size} bytes, and {limit}")


def hold(error: Any, topic: str) -> Hold:
    """What a message waits for, whose topic or whose cluster is unwell."""
    if meaning(error) is Meaning.CLUSTER:
        return Hold(describe(error))
    return Hold(f"topic {topic}: {describe(error)}", topic)
