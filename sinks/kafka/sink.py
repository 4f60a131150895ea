"""Apache Kafka, and what speaks its protocol: one record a message.

Every message waits for its own delivery report. `kafka_records` says what a record holds, `kafka_work` what goes out
when, `kafka_errors` what a refusal means.

Delivery is at least once: a message whose report never came is sent again, under the same `message_id`. With
`exactly_once` (`kafka_transactions`) consumers that read committed records see it once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

from pydantic import Field, ValidationInfo, field_validator

from sinks.base import Batch, Hold, Outcome, Reject, Sink, SinkConfig, never_lost
from sinks.envelopes.debezium import TOPIC
from sinks.envelopes.envelope import BadEnvelope
from sinks.kafka.client import Patience, Record
from sinks.kafka.envelopes import KafkaEnvelopeOptions, envelope_of
from sinks.kafka.judge import Judge
from sinks.kafka.options import producer_options
from sinks.kafka.plain import PlainSender
from sinks.kafka.records import BadTopic, to_record
from sinks.kafka.transactions import TransactionalSender
from sinks.kafka.work import Work
from sinks.template import Template, TemplateError


class KafkaOptions(KafkaEnvelopeOptions):
    """Configuration keys of `type = "kafka"`."""

    topic: Template = Field(default=None, validate_default=True)
    """Default: `{kind}`; with Debezium's envelope as its event router does it."""
    exactly_once: bool = False
    """Send in transactions, which tell after a crash what was committed, and shut out a sender that has stalled."""
    claims_topic: str = "outbox-relay.claims"
    """With `exactly_once`: the topic that keeps what became of each claim. It is made where it is missing."""

    @field_validator("topic", mode="before")
    @classmethod
    def _default_topic(cls, topic: Any, info: ValidationInfo) -> Any:
        if topic is not None:
            return topic
        return TOPIC if info.data.get("envelope") == "debezium" else Template("{kind}")


class KafkaSink(Sink):
    """Produces to Kafka."""

    Options = KafkaOptions

    def __init__(self, config: SinkConfig) -> None:
        """
        Raises:
            ValueError: librdkafka does not take an option of `client`, or it would break a promise.
        """
        super().__init__(config)
        self._envelope = envelope_of(config)
        self.fenced = config.options.exactly_once
        self._judge = Judge(producer_options(config))
        self._sender: PlainSender | TransactionalSender = (
            TransactionalSender(self._judge, config.name, config.options.claims_topic)
            if config.options.exactly_once
            else PlainSender(self._judge, ordered=config.ordered)
        )

    @property
    def options(self) -> Mapping[str, Any]:
        """librdkafka's options as they are now: the relay's own and the user's over them."""
        return self._judge.options

    @property
    def fatal_producers(self) -> int:
        """How many producers ended with a fatal error and were replaced."""
        return self._sender.fatal_producers

    def fingerprint(self) -> str:
        brokers = ",".join(sorted(str(self.options.get("bootstrap.servers", "")).replace(" ", "").split(",")))
        claims = f" claims {self.config.options.claims_topic}" if self.config.options.exactly_once else ""
        return f"kafka {brokers} topic {self.config.options.topic}{claims}"

    def new_token(self) -> UUID:
        """A token for the next claim: with `exactly_once` it names the transactional id that will send it."""
        return self._sender.new_token() if isinstance(self._sender, TransactionalSender) else uuid4()

    def open(self) -> None:
        self._sender.open(Patience(self.config.send_timeout, never_lost))

    def close(self) -> None:
        self._sender.close()
        self._judge.topics.forget()

    def send(self, batch: Batch) -> Sequence[Outcome]:
        if not batch.messages:
            return []
        work = self._work(batch)
        self._sender.send(work, batch, Patience(self.config.send_timeout, batch.lost))
        # Where the claim was lost, some are not decided; nobody uses what is said of them.
        return [
            outcome or Hold("not sent: the claim was lost", work.record(at).topic)
            for at, outcome in enumerate(work.outcomes)
        ]

    def _work(self, batch: Batch) -> Work:
        template, sink = self.config.options.topic, self.config.name
        records: list[Record | None] = []
        outcomes: list[Outcome | None] = [None] * len(batch.messages)
        for position, message in enumerate(batch.messages):
            try:
                records.append(to_record(message, template, sink, self._envelope))
            except (BadTopic, TemplateError, BadEnvelope) as error:
                records.append(None)
                outcomes[position] = Reject(str(error))
        return Work(batch.messages, records, outcomes, ordered=self.config.ordered)
