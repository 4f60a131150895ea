"""librdkafka's options: which are ours, which the user's, and which nobody may change."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from pydantic import ValidationError

from sinks.base import SinkConfig
from sinks.kafka.options import KafkaOptions, producer_options
from sinks.kafka.sink import KafkaSink
from sinks.testing import message

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}


def options(
    *, ordered: bool = False, exactly_once: bool = False, timeout: float = 10.0, **client: Any
) -> dict[str, Any]:
    named = {name if name == "oauth_cb" else name.replace("_", "."): value for name, value in client.items()}
    given = {**NOWHERE, **named}
    parsed = KafkaOptions(exactly_once=exactly_once)
    return producer_options(SinkConfig("orders", parsed, send_timeout=timeout, ordered=ordered, client=given))


def test_defaults_are_safe() -> None:
    found = options()
    assert found["enable.idempotence"] is True
    assert found["acks"] == "all"
    assert found["partitioner"] == "murmur2_random"
    assert found["compression.type"] == "lz4"
    assert 10_000 < found["message.timeout.ms"] < 20_000


def test_the_user_s_own_win_under_any_name() -> None:
    found = options(queue_buffering_max_ms=20, compression_codec="zstd", partitioner="consistent", batch_size=50_000)
    assert (found["linger.ms"], found["compression.type"]) == (20, "zstd")
    assert (found["partitioner"], found["batch.size"]) == ("consistent", 50_000)
    assert "queue.buffering.max.ms" not in found


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"acks": 0}, "acks: expected"),
        ({"request_required_acks": "1"}, "acks: expected"),
        ({"message_timeout_ms": 300_000}, "less than 20000, the shortest lease"),
        ({"delivery_timeout_ms": 5_000}, "more than 10000"),
        ({"transactional_id": "mine"}, "exactly_once"),
        ({"delivery_report_only_error": True}, "delivery report"),
        ({"ordered": True, "partitioner": "random"}, "no order over partitions"),
        ({"ordered": True, "linger_ms": 50}, "linger.ms"),
        ({"ordered": True, "enable_idempotence": False}, "may pass other messages"),
        ({"exactly_once": True, "enable_idempotence": "false"}, "enable.idempotence"),
        ({"no_such_option": 1}, 'No such configuration property: "no.such.option"'),
        ({"linger_ms": "soon"}, "Invalid value"),
        ({"max_in_flight": 6}, "max.in.flight"),
        ({"oauth_cb": "not a name"}, "module:function"),
        ({"oauth_cb": "no_such_module:token"}, "module:function"),
    ],
)
def test_what_breaks_a_promise_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        options(**given)


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ValueError, match=r"acks.*message\.timeout\.ms"):
        options(acks=0, message_timeout_ms=1)


def test_brokers_must_be_named() -> None:
    with pytest.raises(ValueError, match=r"bootstrap\.servers"):
        KafkaSink(SinkConfig("orders", KafkaOptions()))


@pytest.mark.parametrize("timeout", [0.5, 1, 10, 300, 1000])
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("exactly_once", [False, True])
def test_librdkafka_takes_the_defaults(timeout: float, ordered: bool, exactly_once: bool) -> None:
    assert options(ordered=ordered, exactly_once=exactly_once, timeout=timeout)["message.timeout.ms"] > timeout * 1000


@pytest.mark.parametrize(("timeout", "lease"), [(1, 30), (10, 30), (60, 120), (600, 1200)])
def test_what_a_dead_sender_left_open_ends_before_its_lease_does(timeout: float, lease: float) -> None:
    """Brokers look for such transactions every ten seconds."""
    found = options(exactly_once=True, timeout=timeout)
    assert found["transaction.timeout.ms"] / 1000 + 10 < lease
    assert found["message.timeout.ms"] <= found["transaction.timeout.ms"]


@pytest.mark.parametrize(
    ("key", "topic"),
    [("topic", "my topic"), ("topic", "a/{kind}"), ("topic", "."), ("topic", "x" * 250), ("claims_topic", "my claims")],
)
def test_topic_that_cannot_be_is_refused_at_once(key: str, topic: str) -> None:
    """What a template makes of a message is known only when it is sent; what stands in the file is known now.

    Templates of an envelope's headers become no names: there everything is right.
    """
    with pytest.raises(ValidationError, match="a legal topic"):
        KafkaOptions.model_validate({key: topic})


@pytest.mark.parametrize("topic", ["orders", "{kind}.", ".{kind}", "{header.type:my topic}", "a.b-c_{key}"])
def test_topic_that_may_be_is_taken(topic: str) -> None:
    assert str(KafkaOptions.model_validate({"topic": topic}).topic) == topic


def test_sink_tells_where_a_message_goes() -> None:
    def sink(topic: str) -> KafkaSink:
        return KafkaSink(SinkConfig("orders", KafkaOptions.model_validate({"topic": topic}), client=NOWHERE))

    one = message(1, kind="order.created")
    assert (sink("orders").sole_destination, sink("orders").destination(one)) == ("orders", "orders")
    assert (sink("{kind}").sole_destination, sink("{kind}").destination(one)) == (None, "order.created")
    assert sink("{key}").destination(one) is None


def test_options_are_asked_about_in_silence(capfd: pytest.CaptureFixture[str]) -> None:
    assert options(debug="all")["debug"] == "all"
    assert capfd.readouterr() == ("", "")


class Tokens:
    """Gives OAuth tokens that live for a second."""

    asked = 0

    def __call__(self, _config: str) -> tuple[str, float]:
        self.asked += 1
        return "token", time.time() + 1.0


def test_oauth_token_is_renewed_while_nothing_is_sent() -> None:
    tokens = Tokens()
    client = {**NOWHERE, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": tokens}
    sink = KafkaSink(SinkConfig("orders", KafkaOptions(), send_timeout=0.5, client=client))
    assert tokens.asked == 0
    with pytest.raises(Exception, match="refused"):
        sink.open()
    deadline = time.monotonic() + 10
    while tokens.asked < 4 and time.monotonic() < deadline:
        time.sleep(0.05)
    sink.close()
    assert tokens.asked >= 4
