"""What Kafka's error codes mean for a message."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from sinks.base import Hold, Reject, Retry
from sinks.kafka.errors import Meaning, denied, describe, hold, meaning, missing, outcome_alone


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, Meaning.SUSPECT),
        (KafkaError.INVALID_RECORD, Meaning.SUSPECT),
        (KafkaError._INVALID_DIFFERENT_RECORD, Meaning.SUSPECT),
        (KafkaError._FATAL, Meaning.AGAIN),
        (KafkaError._PURGE_QUEUE, Meaning.AGAIN),
        (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, Meaning.AGAIN),
        (KafkaError._MSG_TIMED_OUT, Meaning.UNKNOWN),
        (KafkaError._PURGE_INFLIGHT, Meaning.UNKNOWN),
        (KafkaError._DESTROY, Meaning.UNKNOWN),
        (KafkaError._ALL_BROKERS_DOWN, Meaning.CLUSTER),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, Meaning.CLUSTER),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Meaning.TOPIC),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, Meaning.TOPIC),
        (KafkaError.NOT_ENOUGH_REPLICAS, Meaning.TOPIC),
        (KafkaError.THROTTLING_QUOTA_EXCEEDED, Meaning.TOPIC),
        (KafkaError.POLICY_VIOLATION, Meaning.TOPIC),
    ],
)
def test_each_code_has_its_meaning(code: int, expected: Meaning) -> None:
    assert meaning(KafkaError(code)) is expected


def test_an_unlisted_fatal_error_ends_the_producer_and_not_the_message() -> None:
    assert meaning(KafkaError(KafkaError.KAFKA_STORAGE_ERROR, fatal=True)) is Meaning.AGAIN


def test_refused_logins_are_told_from_the_rest() -> None:
    assert denied(KafkaError(KafkaError._AUTHENTICATION))
    assert denied(KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    assert not denied(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    assert missing(KafkaError(KafkaError._UNKNOWN_TOPIC))
    assert not missing(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))


def test_outcome_of_a_message_that_travelled_alone() -> None:
    too_large = outcome_alone(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), "t", 200, "100 (max.message.bytes)")
    assert too_large == Reject("too large: 200 bytes, and topic t takes 100 (max.message.bytes)")
    assert isinstance(outcome_alone(KafkaError(KafkaError.INVALID_RECORD), "t", 1, ""), Reject)
    assert isinstance(outcome_alone(KafkaError(KafkaError.INVALID_TIMESTAMP), "t", 1, ""), Retry)
    assert "no key" in str(outcome_alone(KafkaError(KafkaError.INVALID_RECORD), "t", 1, "", has_key=False))
    assert "no key" not in str(outcome_alone(KafkaError(KafkaError.INVALID_RECORD), "t", 1, "", has_key=True))


def test_what_is_unwell_is_the_topic_or_the_whole_cluster() -> None:
    assert hold(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), "t") == Hold(
        "topic t: the topic does not exist (UNKNOWN_TOPIC_OR_PART)", "t"
    )
    whole = hold(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED), "t")
    assert isinstance(whole, Hold)
    assert whole.destination is None


def test_description_is_one_line_of_bounded_length() -> None:
    text = describe(KafkaError(KafkaError._TRANSPORT, "host:\n9092 " + "x" * 1000))
    assert "\n" not in text
    assert len(text) == 300
