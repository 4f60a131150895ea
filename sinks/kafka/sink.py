"""Apache Kafka, and what speaks its protocol: one record a message.

Every message waits for its own delivery report. `records` says what a record holds, `work` what goes out
when, `errors` what a refusal means.

Delivery is at least once: a message whose report never came is sent again, under the same `message_id`. With
`exactly_once` (`transactions`) consumers that read committed records see it once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

from sinks.base import Batch, Hold, Message, Outcome, Reject, Sink, SinkConfig, never
from sinks.envelopes.envelope import BadEnvelope
from sinks.kafka.client import Patience, Record
from sinks.kafka.judge import Judge
from sinks.kafka.options import KafkaOptions, envelope_of, producer_options
from sinks.kafka.plain import PlainSender
from sinks.kafka.records import BadTombstone, BadTopic, to_record
from sinks.kafka.transactions import TransactionalSender
from sinks.kafka.work import Work
from sinks.template import Template, TemplateError

__all__ = ["KafkaOptions", "KafkaSink"]


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
        self._topic: Template = config.options.topic
        self.fenced = config.options.exactly_once
        self._judge = Judge(producer_options(config))
        self.largest = int(self._judge.options["message.max.bytes"])
        self._sender: PlainSender | TransactionalSender = (
            TransactionalSender(self._judge, config.name, config.options.claims_topic.replace("{sink}", config.name))
            if config.options.exactly_once
            else PlainSender(self._judge, ordered=config.ordered)
        )

    @property
    def options(self) -> Mapping[str, Any]:
        """librdkafka's options as they are now: the relay's own and the user's over them."""
        return self._judge.options

    @property
    def clients_replaced(self) -> int:
        """How many producers ended with a fatal error."""
        return self._sender.fatal_producers

    def fingerprint(self) -> str:
        brokers = ",".join(sorted(str(self.options.get("bootstrap.servers", "")).replace(" ", "").split(",")))
        claims = f" claims {self.config.options.claims_topic}" if self.config.options.exactly_once else ""
        return f"kafka {brokers} topic {self.config.options.topic}{claims}"

    @property
    def sole_destination(self) -> str | None:
        return self._topic.constant

    def destination(self, message: Message) -> str | None:
        try:
            return self._topic.render(message, self.config.name)
        except TemplateError:
            return None

    def ask(self) -> bool:
        self._judge.admin.ask(Patience(self.config.send_timeout, never))
        return True

    def new_token(self) -> UUID:
        """A token for the next claim: with `exactly_once` it names the transactional id that will send it."""
        return self._sender.new_token() if isinstance(self._sender, TransactionalSender) else uuid4()

    def open(self) -> None:
        self._sender.open(Patience(self.config.send_timeout, never))

    def close(self) -> None:
        self._sender.close()
        self._judge.close()

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
        options: KafkaOptions = self.config.options
        # By the database's clock: a wrong one here must not make Kafka refuse a record, or delete it too early.
        time_ms = batch.claimed_us // 1000 if options.timestamp == "sent" else None
        records: list[Record | None] = []
        outcomes: list[Outcome | None] = [None] * len(batch.messages)
        for position, message in enumerate(batch.messages):
            try:
                records.append(to_record(message, self._topic, self.config.name, time_ms, self._envelope))
            except (BadTopic, TemplateError, BadEnvelope, BadTombstone) as error:
                records.append(None)
                outcomes[position] = Reject(str(error))
        return Work(batch.messages, records, outcomes, ordered=self.config.ordered)
