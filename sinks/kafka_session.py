"""One transactional identity, from when it is taken over to its end; and where its marks are kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from sinks.base import SinkUnavailable
from sinks.kafka_client import KafkaClient, Patience, log
from sinks.kafka_errors import describe, error_of
from sinks.kafka_marks import Mark, marks_from_text, marks_to_text

_UNSTABLE: Final = "UNSTABLE_OFFSET_COMMIT"


class Saved(NamedTuple):
    """What an identity has committed."""

    marks: dict[str, Mark]
    topic: str | None
    """Whose offset carries the marks; any topic will do, as long as it exists."""
    number: int
    """Of the last commit: the offset."""


class MarkStore:
    """Reads the marks of identities.

    Args:
        options: of the sink's producers.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._admin = AdminClient({**options, "enable.idempotence": False}, logger=log)

    def read(self, name: str, patience: Patience) -> Saved:
        """
        Raises:
            SinkUnavailable: no broker tells.
        """
        request = [ConsumerGroupTopicPartitions(name)]
        while True:
            seconds = max(0.1, patience.left)
            try:
                answer = self._admin.list_consumer_group_offsets(request, require_stable=True, request_timeout=seconds)
                offsets = answer[name].result(seconds).topic_partitions
            except TimeoutError:
                raise SinkUnavailable(f"consumer group {name}: no answer in time", unknown=False) from None
            except KafkaException as error:
                raise SinkUnavailable(f"consumer group {name}: {describe(error_of(error))}", unknown=False) from error
            unstable = [offset.error for offset in offsets if offset.error]
            if not unstable:
                return _saved(offsets)
            # A transaction has ended, and the group has yet to hear of it.
            if unstable[0].name() != _UNSTABLE or patience.over:
                raise SinkUnavailable(f"consumer group {name}: {describe(unstable[0])}", unknown=False)
            self._admin.poll(patience.slice())


def _saved(offsets: list[TopicPartition]) -> Saved:
    if not offsets:
        return Saved({}, None, 0)
    last = max(offsets, key=lambda offset: offset.offset)
    return Saved(marks_from_text(last.metadata or ""), last.topic, last.offset)


class Session:
    """A transactional producer under a name that nobody else sends under from now on.

    Args:
        name: transactional id and consumer group.

    Raises:
        SinkUnavailable: no broker answers.
        KafkaException: Kafka does not hand the name over.
    """

    def __init__(self, name: str, options: Mapping[str, Any], store: MarkStore, patience: Patience) -> None:
        self.name = name
        self._group = _group(name)
        self.client = KafkaClient({**options, "transactional.id": name})
        try:
            self.client.connect(patience)
            self.client.producer.init_transactions(patience.left)
            self.saved = store.read(name, patience)
        except BaseException:
            self.client.discard()
            raise

    @property
    def marks(self) -> dict[str, Mark]:
        return self.saved.marks

    def begin(self) -> None:
        self.client.producer.begin_transaction()

    def forget(self, token: str) -> None:
        """The next commit leaves this mark out."""
        self.marks.pop(token, None)

    def commit(self, token: str, mark: Mark, topic: str, patience: Patience) -> None:
        """Commit what was sent since `begin`, and the mark.

        Args:
            topic: one that exists.

        Raises:
            SinkUnavailable: it is not known whether that was done.
            KafkaException: it was not.
        """
        producer = self.client.producer
        marks = {name: kept for name, kept in self.marks.items() if name != token} | {token: mark}
        carrier = self.saved.topic or topic
        saved = Saved(marks, carrier, self.saved.number + 1)
        offset = TopicPartition(carrier, 0, saved.number, metadata=marks_to_text(marks))
        producer.send_offsets_to_transaction([offset], self._group, patience.left)
        try:
            producer.commit_transaction(patience.left)
        except KafkaException as error:
            if error_of(error).txn_requires_abort():
                raise
            raise SinkUnavailable(f"commit: {describe(error_of(error))}", unknown=True) from error
        self.saved = saved

    def end(self, patience: Patience | None = None) -> None:
        """Abort what is open, as far as that is quick, and send nothing more."""
        if patience is not None:
            try:
                self.client.producer.abort_transaction(min(1.0, patience.left))
            except KafkaException as error:
                # Kafka aborts it when the name is taken over, or after transaction.timeout.ms.
                log.info("transaction was not aborted: %s", describe(error_of(error)))
        self.client.discard()


def _group(name: str) -> Any:
    """The metadata of a consumer group without members. Its consumer is never connected to anything."""
    consumer = Consumer({"group.id": name, "log_level": 0})
    try:
        return consumer.consumer_group_metadata()
    finally:
        consumer.close()
