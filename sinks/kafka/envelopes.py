"""Which envelopes the Kafka sink offers, and their options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ValidationInfo

from sinks.base import SinkConfig, SinkOptions
from sinks.envelopes.cloudevents import CloudEvents, Source
from sinks.envelopes.debezium import Converter, Debezium
from sinks.envelopes.envelope import Envelope
from sinks.template import Template


def _only_debezium(value: Any, info: ValidationInfo) -> Any:
    if info.data.get("envelope", "debezium") != "debezium":
        raise ValueError('this key only with envelope = "debezium"')
    return value


class KafkaEnvelopeOptions(SinkOptions):
    """Configuration keys about what a record holds."""

    envelope: Literal["raw", "cloudevents", "cloudevents-structured", "debezium"] = "raw"
    source: Source = None
    """Of CloudEvents."""
    key_converter: Annotated[Converter, AfterValidator(_only_debezium)] = "string"
    value_converter: Annotated[Converter, AfterValidator(_only_debezium)] = "string"
    headers: Annotated[Mapping[str, Template], AfterValidator(_only_debezium)] = {}
    """Debezium's further headers: name → template."""


def envelope_of(config: SinkConfig) -> Envelope | None:
    """None: the message as it is."""
    options: KafkaEnvelopeOptions = config.options
    match options.envelope:
        case "raw":
            return None
        case "debezium":
            return Debezium(
                config.name,
                key_converter=options.key_converter,
                value_converter=options.value_converter,
                headers=options.headers,
            )
        case _:
            return CloudEvents(config.name, options.source, structured=options.envelope == "cloudevents-structured")
