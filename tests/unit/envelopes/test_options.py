"""Which envelopes a sink offers, and what it says of the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sinks.kafka.sink import KafkaOptions
from sinks.redis.stream import RedisStreamOptions
from sinks.sqs.sink import SqsOptions
from tests.unit.configured import DATABASE, problems, settings

SINKS = {
    "kafka": 'type = "kafka"\nclient = { "bootstrap.servers" = "localhost:9092" }\n',
    "sqs": 'type = "sqs"\nqueue = "orders"\nregion = "eu-central-1"\n',
    "redis-stream": 'type = "redis-stream"\nurl = "redis://localhost"\n',
}


def text(sink: str, options: str) -> str:
    return f"{DATABASE}[sinks.orders]\n{SINKS[sink]}{options}\n"


def load(folder: Path, sink: str, options: str) -> Any:
    """The sink's options."""
    return settings(folder, text(sink, options)).sinks["orders"].options


@pytest.mark.parametrize("sink", SINKS)
def test_raw_is_the_default(tmp_path: Path, sink: str) -> None:
    assert load(tmp_path, sink, "").envelope == "raw"


@pytest.mark.parametrize(
    ("sink", "envelope"),
    [("kafka", name) for name in ("raw", "cloudevents", "cloudevents-structured", "debezium")]
    + [(sink, name) for sink in ("sqs", "redis-stream") for name in ("raw", "cloudevents-structured")],
)
def test_what_each_sink_offers(tmp_path: Path, sink: str, envelope: str) -> None:
    assert load(tmp_path, sink, f'envelope = "{envelope}"').envelope == envelope


@pytest.mark.parametrize("sink", ["sqs", "redis-stream"])
@pytest.mark.parametrize("envelope", ["cloudevents", "debezium"])
def test_only_kafka_has_a_binding(tmp_path: Path, sink: str, envelope: str) -> None:
    (problem,) = problems(tmp_path, text(sink, f'envelope = "{envelope}"'))
    assert problem.startswith("relay.toml: sinks.orders.envelope: ")
    assert 'expected "raw" or "cloudevents-structured", as only Kafka has a binding for the others' in problem
    assert problem.endswith(f'got "{envelope}"')


@pytest.mark.parametrize("sink", SINKS)
def test_an_unknown_envelope_is_answered_with_the_known_ones(tmp_path: Path, sink: str) -> None:
    (problem,) = problems(tmp_path, text(sink, 'envelope = "avro"'))
    assert "'raw'" in problem
    assert "'cloudevents-structured'" in problem


@pytest.mark.parametrize(
    "source", ["https://example.com/shop?a=b#c", "urn:uuid:6e8bc430", "/shop", "mailto:a@b.c", "%41"]
)
def test_sources(tmp_path: Path, source: str) -> None:
    assert load(tmp_path, "kafka", f'envelope = "cloudevents"\nsource = "{source}"').source == source


@pytest.mark.parametrize("source", ["", "a b", "é", "%4", "a\\nb"])
def test_a_source_that_is_no_uri(tmp_path: Path, source: str) -> None:
    (problem,) = problems(tmp_path, text("sqs", f'envelope = "cloudevents-structured"\nsource = "{source}"'))
    assert "sinks.orders.source: expected a URI reference" in problem


@pytest.mark.parametrize("envelope", ["raw", "debezium"])
def test_a_source_without_events(tmp_path: Path, envelope: str) -> None:
    (problem,) = problems(tmp_path, text("kafka", f'envelope = "{envelope}"\nsource = "/shop"'))
    assert "sinks.orders.source: expected no source but with an envelope of CloudEvents" in problem


@pytest.mark.parametrize(
    ("option", "value"),
    [("key_converter", '"json"'), ("value_converter", '"json-schema"'), ("headers", '{ eventType = "{kind}" }')],
)
def test_options_of_debezium_need_debezium(tmp_path: Path, option: str, value: str) -> None:
    assert getattr(load(tmp_path, "kafka", f'envelope = "debezium"\n{option} = {value}'), option)
    (problem,) = problems(tmp_path, text("kafka", f'envelope = "cloudevents"\n{option} = {value}'))
    assert f'sinks.orders.{option}: expected this key only with envelope = "debezium"' in problem


def test_a_header_s_template_is_checked(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, text("kafka", 'envelope = "debezium"\nheaders = { eventType = "{type}" }'))
    assert "sinks.orders.headers.eventType: expected a template" in problem


def test_the_default_topic_depends_on_the_envelope() -> None:
    assert KafkaOptions().topic.text == "{kind}"
    assert KafkaOptions(envelope="debezium").topic.text == "outbox.event.{header.aggregatetype}"
    assert KafkaOptions.model_validate({"envelope": "debezium", "topic": "{kind}"}).topic.text == "{kind}"


def test_other_defaults() -> None:
    assert SqsOptions.model_validate({"queue": "orders"}).source is None
    assert RedisStreamOptions(url="redis://localhost").source is None
