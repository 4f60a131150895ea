"""The sink's own configuration keys, and librdkafka's options: ours, the user's over them, and what may not be changed
because a promise rests on it.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from confluent_kafka import KafkaException, Producer
from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from sinks.base import BadClient, SinkConfig, SinkOptions
from sinks.envelopes.cloudevents import CloudEvents, Source
from sinks.envelopes.debezium import TOPIC, Converter, Debezium
from sinks.envelopes.envelope import Envelope
from sinks.kafka.errors import error_of
from sinks.kafka.records import topic_problem
from sinks.template import Template

# Its other names, from CONFIGURATION.md of librdkafka 2.16.
ALIASES: Final = {
    "metadata.broker.list": "bootstrap.servers",
    "request.required.acks": "acks",
    "queue.buffering.max.ms": "linger.ms",
    "message.send.max.retries": "retries",
    "compression.codec": "compression.type",
    "delivery.timeout.ms": "message.timeout.ms",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "sasl.mechanisms": "sasl.mechanism",
}

LINGER_MS: Final = 5
BATCH_BYTES: Final = 1_000_000
"""librdkafka's own default of `batch.size` and of `message.max.bytes`."""
BATCH_MESSAGES: Final = 10_000
QUEUE_MESSAGES: Final = 100_000
QUEUE_KBYTES: Final = 1_048_576
"""librdkafka's own defaults too."""

SHORTEST_TRANSACTION_MS: Final = 1000

CLUSTER: Final = {"bootstrap.servers", "test.mock.num.brokers"}
"""What says where the brokers are; the second one makes them inside this process."""

OURS: Final = {
    "transactional.id": "nothing: the relay sets it where exactly_once = true",
    "delivery.report.only.error": "nothing: a message is done only when its own delivery report says so",
    "default.topic.config": "nothing: its options go beside the others",
    "enable.gapless.guarantee": "nothing: the relay itself keeps the order of what fails",
}


def _only_debezium(value: Any, info: ValidationInfo) -> Any:
    if info.data.get("envelope", "debezium") != "debezium":
        raise ValueError('this key only with envelope = "debezium"')
    return value


class KafkaOptions(SinkOptions):
    """Configuration keys of `type = "kafka"`."""

    envelope: Literal["raw", "cloudevents", "cloudevents-structured", "debezium"] = "raw"
    source: Source = None
    """Of CloudEvents."""
    key_converter: Annotated[Converter, AfterValidator(_only_debezium)] = "string"
    value_converter: Annotated[Converter, AfterValidator(_only_debezium)] = "string"
    headers: Annotated[Mapping[str, Template], AfterValidator(_only_debezium)] = {}
    """Debezium's further headers: name → template."""
    topic: Template = Field(default=None, validate_default=True)
    """Default: `{kind}`; with Debezium's envelope as its event router does it."""
    timestamp: Literal["sent", "written"] = "sent"
    """What a record's timestamp tells. Kafka deletes records by it."""
    exactly_once: bool = False
    """Send in transactions, which tell after a crash what was committed, and shut out a sender that has stalled."""
    claims_topic: str = "outbox-relay.{sink}.claims"
    """With `exactly_once`: keeps what became of each claim; `{sink}` is the sink's name. Made where it is missing."""

    @field_validator("topic", mode="before")
    @classmethod
    def _default_topic(cls, topic: Any, info: ValidationInfo) -> Any:
        if topic is not None:
            return topic
        return TOPIC if info.data.get("envelope") == "debezium" else Template("{kind}")

    @field_validator("topic", "claims_topic")
    @classmethod
    def _legal_topic(cls, topic: Template | str) -> Template | str:
        if isinstance(topic, str):
            name = topic.replace("{sink}", "x")
        else:  # whatever stands beside the places has to be legal too
            name = topic.constant or "x" + "".join(topic.literals)
        problem = topic_problem(name)
        if problem:
            raise ValueError(f"a legal topic: {problem}")
        return topic


def envelope_of(config: SinkConfig) -> Envelope | None:
    """None: the message as it is."""
    options: KafkaOptions = config.options
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


def producer_options(config: SinkConfig) -> dict[str, Any]:
    """All options of a producer of this sink, by their first names.

    Raises:
        BadClient: the user's options break a promise.
        ValueError: librdkafka does not take them.
    """
    given = {ALIASES.get(name, name): value for name, value in config.client.items()}
    expected = _broken_promises(given, config)
    if expected:
        raise BadClient(expected)
    if isinstance(given.get("oauth_cb"), str):
        given["oauth_cb"] = _function(given["oauth_cb"])
    options = _defaults(config) | given
    _ask_librdkafka(options)
    return options


def _defaults(config: SinkConfig) -> dict[str, Any]:
    timeout_ms = round(config.send_timeout * 1000)
    options: dict[str, Any] = {
        "client.id": f"outbox-relay-{config.name}",
        "enable.idempotence": True,
        "acks": "all",
        "partitioner": "murmur2_random",
        "compression.type": "lz4",
        "linger.ms": LINGER_MS,
        "batch.size": BATCH_BYTES,
        "batch.num.messages": BATCH_MESSAGES,
        "message.max.bytes": BATCH_BYTES,
        "queue.buffering.max.messages": QUEUE_MESSAGES,
        "queue.buffering.max.kbytes": QUEUE_KBYTES,
        # The sink's own deadline comes first and takes all messages back at once: librdkafka's gives up one by one,
        # which would let a later one of a key pass. It is there for a process that was stopped in mid-air.
        "message.timeout.ms": round(timeout_ms * 1.5),
        # As long as librdkafka takes them.
        "request.timeout.ms": min(timeout_ms, 900_000),
        "socket.timeout.ms": min(max(1000, timeout_ms), 300_000),
        "socket.connection.setup.timeout.ms": max(1000, timeout_ms),
        "socket.keepalive.enable": True,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1000,
        # How long a topic that is not there may still turn up.
        "topic.metadata.propagation.max.ms": 1000,
    }
    if config.ordered:
        # As long as a send may take: nothing leaves before the flush, which makes it leave at once, so what is for
        # one partition leaves as one record batch.
        options["linger.ms"] = min(timeout_ms, 900_000)
        # By default twice linger.ms: messages without a key would stay on one partition for long.
        options["sticky.partitioning.linger.ms"] = 2 * LINGER_MS
    if config.options.exactly_once:
        # No send takes longer. Past it Kafka itself ends what a dead sender left open, which holds up whoever reads
        # committed records only: so this has to be well below a lease, which is at least twice `send_timeout`.
        options["transaction.timeout.ms"] = max(2000, round(timeout_ms * 1.1))
        options["linger.ms"] = LINGER_MS
        _fit_into_transaction(options)
    return options


def _fit_into_transaction(options: dict[str, Any]) -> None:
    """As librdkafka demands."""
    timeout_ms = int(options["transaction.timeout.ms"])
    options["message.timeout.ms"] = min(int(options["message.timeout.ms"]), timeout_ms)
    options["socket.timeout.ms"] = min(int(options["socket.timeout.ms"]), timeout_ms - 100)


def shorten_transactions(options: dict[str, Any], error: Any) -> bool:
    """Make transactions shorter where Kafka takes none as long (`transaction.max.timeout.ms`).

    Args:
        options: of a sink's producers.
        error: for which Kafka refused them.

    Returns:
        Whether it makes sense to try again.
    """
    timeout_ms = int(options["transaction.timeout.ms"])
    if error.name() != "INVALID_TRANSACTION_TIMEOUT" or timeout_ms < 2 * SHORTEST_TRANSACTION_MS:
        return False
    options["transaction.timeout.ms"] = timeout_ms // 2
    _fit_into_transaction(options)
    return True


def _broken_promises(given: Mapping[str, Any], config: SinkConfig) -> dict[str, str]:
    """What was expected, by option."""
    expected = {name: words for name, words in OURS.items() if name in given}
    if not given.keys() & CLUSTER:
        expected["bootstrap.servers"] = "at least one HOST:PORT"
    if str(given.get("acks", "all")) not in {"all", "-1"}:
        expected["acks"] = '"all", as a message is done only once Kafka cannot lose it'
    timeout = given.get("message.timeout.ms")
    if timeout is not None and not 1 < float(timeout) / 1000 / config.send_timeout < 2:
        shortest = config.send_timeout * 1000
        expected["message.timeout.ms"] = (
            f"more than {shortest:g} (send_timeout) and less than {2 * shortest:g}, the shortest lease"
        )
    idempotent = str(given.get("enable.idempotence", True)).lower() == "true"
    if (config.ordered or config.options.exactly_once) and not idempotent:
        expected["enable.idempotence"] = "true, as without it a retry may pass other messages"
    if config.ordered:
        if given.get("partitioner") == "random":
            expected["partitioner"] = 'one by key, such as "murmur2", as a key has no order over partitions'
        if "linger.ms" in given and not config.options.exactly_once:
            expected["linger.ms"] = "nothing: an ordered sink hands over what it has as a whole"
    return expected


def _function(name: str) -> Any:
    """What `"module:function"` names: a configuration file cannot hold a function."""
    try:
        return pkgutil.resolve_name(name)
    except (ValueError, ImportError, AttributeError) as error:
        raise BadClient({"oauth_cb": f'"module:function": {error}'}) from error


def _ask_librdkafka(options: Mapping[str, Any]) -> None:
    """Make a producer that knows no broker and asks for no token, so that it talks to nobody.

    Raises:
        ValueError: an option that librdkafka does not know or take.
    """
    # What `debug` asks for would be raw text here, and say nothing of use.
    not_asked = CLUSTER | {"debug"}
    if "oauth_cb" in options:
        not_asked |= {"oauth_cb", "security.protocol", "sasl.mechanism"}
    alone = {name: value for name, value in options.items() if name not in not_asked}
    try:
        Producer({**alone, "log_level": 0})
    except KafkaException as error:
        raise ValueError(f"options that librdkafka takes: {error_of(error).str()}") from None
