"""A key's messages in order, although Kafka refuses one of them."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sinks.base import DELIVERED, Hold, Message, Outcome, Reject
from sinks.testing import batch, message
from tests.kafka_sinks import ids, opened
from tests.servers.kafka import KafkaCluster, new_name

LIMIT = 20_000
TOO_LARGE = os.urandom(2 * LIMIT)


def delivered(messages: Sequence[Message], outcomes: Sequence[Outcome]) -> list[str]:
    return [str(one.message_id) for one, outcome in zip(messages, outcomes, strict=True) if outcome == DELIVERED]


@pytest.mark.parametrize("exactly_once", [False, True])
@pytest.mark.parametrize("bad", [0, 1, 500, 999])
def test_nothing_passes_a_message_that_kafka_refuses(kafka: KafkaCluster, bad: int, exactly_once: bool) -> None:
    topic = kafka.new_topic(max_message_bytes=LIMIT)
    messages = [message(number, key="stuck" if number % 2 == bad % 2 else "free") for number in range(1000)]
    messages[bad] = messages[bad]._replace(payload=None, body=TOO_LARGE)
    expected = [str(one.message_id) for one in messages if one.key == "free" or one.id < bad]
    with opened(kafka.client, topic, ordered=True, exactly_once=exactly_once) as sink:
        outcomes = sink.send(batch(messages, token=sink.new_token()))
        assert isinstance(outcomes[bad], Reject)
        assert delivered(messages, outcomes) == expected
        assert sorted(ids(kafka.read(topic))) == sorted(expected)
        # The refused message is dead by now, and the key goes on.
        rest = [one for one in messages if one.key == "stuck" and one.id > bad]
        assert sink.send(batch(rest, token=sink.new_token())) == [DELIVERED] * len(rest)
    found = ids(kafka.read(topic))
    for key in ("stuck", "free"):
        of_key = [str(one.message_id) for one in messages if one.key == key and one.id != bad]
        assert [one for one in found if one in of_key] == of_key
    assert len(found) == 999


def test_nothing_passes_a_message_that_librdkafka_refuses(kafka: KafkaCluster) -> None:
    topic = kafka.new_topic()
    messages = [message(number, key="stuck") for number in range(10)]
    messages[4] = messages[4]._replace(payload=None, body=os.urandom(2_000_000))
    with opened(kafka.client, topic, ordered=True) as sink:
        outcomes = sink.send(batch(messages))
    assert isinstance(outcomes[4], Reject)
    assert delivered(messages, outcomes) == [str(one.message_id) for one in messages[:4]] == ids(kafka.read(topic))


def test_more_than_one_record_batch_holds_is_sent_bit_by_bit(kafka: KafkaCluster) -> None:
    topic = kafka.new_topic(max_message_bytes=500_000)
    messages = [message(number, key="k", payload=None, body=os.urandom(90_000)) for number in range(40)]
    messages[30] = messages[30]._replace(body=os.urandom(600_000))
    with opened(kafka.client, topic, ordered=True) as sink:
        outcomes = sink.send(batch(messages))
    assert isinstance(outcomes[30], Reject)
    assert delivered(messages, outcomes) == [str(one.message_id) for one in messages[:30]] == ids(kafka.read(topic))


@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_key_waits_for_its_topics_too(kafka: KafkaCluster, exactly_once: bool) -> None:
    here, there, absent = kafka.new_topic(), kafka.new_topic(), new_name()
    topics = [here, there, here, absent, here, there]
    messages = [message(number, key="a", headers={"topic": topic}) for number, topic in enumerate(topics)]
    messages += [message(10 + number, key="b", headers={"topic": topic}) for number, topic in enumerate(topics[:3])]
    with opened(kafka.client, ordered=True, exactly_once=exactly_once) as sink:
        outcomes = sink.send(batch(messages, token=sink.new_token()))
    assert delivered(messages, outcomes) == [str(one.message_id) for one in (*messages[:3], *messages[6:])]
    assert [one.destination for one in outcomes[3:6] if isinstance(one, Hold)] == [absent] * 3
    assert len(kafka.read(here, there)) == 6


class TestAnyMixture:
    @pytest.fixture(autouse=True)
    def _topics(self, kafka: KafkaCluster) -> None:
        self.kafka = kafka
        self.topics = {
            "one": kafka.new_topic(partitions=2, max_message_bytes=LIMIT),
            "other": kafka.new_topic(partitions=2, max_message_bytes=LIMIT),
            "absent": new_name(),
        }

    @settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["a", "b", "c", None]),
                st.sampled_from(["one"] * 6 + ["other"] * 2 + ["absent"]),
                st.sampled_from([10] * 8 + [LIMIT // 2, 2 * LIMIT]),
            ),
            max_size=40,
        ),
        st.booleans(),
    )
    def test_what_arrives_of_a_key_is_its_beginning(
        self, mixture: list[tuple[str | None, str, int]], once: bool
    ) -> None:
        messages = [
            message(number, key=key, payload=None, body=TOO_LARGE[:size], headers={"topic": self.topics[topic]})
            for number, (key, topic, size) in enumerate(mixture)
        ]
        with opened(self.kafka.client, ordered=True, exactly_once=once) as sink:
            outcomes = sink.send(batch(messages, token=sink.new_token()))
        arrived = ids(self.kafka.read(self.topics["one"], self.topics["other"]))
        for key in ("a", "b", "c"):
            of_key = [at for at, one in enumerate(messages) if one.key == key]
            good = [outcomes[at] == DELIVERED for at in of_key]
            assert good == sorted(good, reverse=True)
            stopped_at = next((at for at in of_key if outcomes[at] != DELIVERED), None)
            if stopped_at is not None:
                assert mixture[stopped_at][1] == "absent" or mixture[stopped_at][2] > LIMIT
        free = [(at, topic, size) for at, (key, topic, size) in enumerate(mixture) if key is None]
        for at, topic, size in free:
            assert (outcomes[at] == DELIVERED) == (topic != "absent" and size < LIMIT)
        mine = [one for one in arrived if one in {str(one.message_id) for one in messages}]
        assert sorted(mine) == sorted(delivered(messages, outcomes))
