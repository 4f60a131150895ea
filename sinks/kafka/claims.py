"""The topic that tells what became of claims: a record a transaction, committed with it or not at all.

Key: the claim's token. Value: a mark (`kafka_marks`); the last one of a token counts. Timestamp: when the token was
made, so that a look-up starts there and reads no more than what was sent since. A sender writes to one partition.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from uuid import UUID

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from sinks.base import SinkUnavailable
from sinks.kafka.client import KafkaClient, Patience, Record, log
from sinks.kafka.errors import describe, error_of, missing
from sinks.kafka.marks import Mark
from sinks.kafka.tokens import identity_of, made_ms

PARTITIONS: Final = 8
RETENTION_MS: Final = 7 * 24 * 3600 * 1000
"""How long it is known what became of a claim: longer than a stalled sender could stay asleep."""
CONFIG: Final = {
    "cleanup.policy": "delete",
    "retention.ms": str(RETENTION_MS),
    "message.timestamp.type": "CreateTime",
}


class Claims:
    """
    Args:
        options: of the sink's producers.
        topic: its name.
    """

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        self._options = {name: value for name, value in options.items() if name != "enable.idempotence"}
        self.topic = topic
        self._partitions = 0

    def prepare(self, client: KafkaClient, patience: Patience) -> None:
        """Make sure that the topic is there.

        Raises:
            SinkUnavailable: it is not, and cannot be made.
        """
        found = client.topic(self.topic, patience)
        if found.error is not None and missing(found.error):
            self._create(patience)
        while found.error is not None and missing(found.error) and not patience.over:
            client.poll(patience.slice())
            found = client.topic(self.topic, patience)
        if found.error is not None:
            raise SinkUnavailable(f"topic {self.topic}: {describe(found.error)}", unknown=False)
        self._partitions = len(found.partitions)

    def record(self, token: UUID, mark: Mark) -> Record:
        """What tells of a claim."""
        value = mark.to_text().encode()
        partition, time_ms = self._partition(token), made_ms(token) or round(time.time() * 1000)
        return Record(self.topic, value, token.bytes, time_ms, [], len(value) + 128, partition)

    def find(self, tokens: Collection[UUID], patience: Patience, *, wait: bool = True) -> dict[UUID, Mark]:
        """The committed marks of those tokens that have one.

        Args:
            wait: where a token has a mark, and a transaction that was open before it still is, for the end of that one.
                Else the mark counts as not committed.

        Raises:
            SinkUnavailable: no answer in time.
        """
        groups: dict[int, list[UUID]] = {}
        for token in tokens:
            groups.setdefault(self._partition(token), []).append(token)
        marks: dict[UUID, Mark] = {}
        try:
            for partition, group in groups.items():
                marks |= self._find(TopicPartition(self.topic, partition), group, patience, wait)
        except KafkaException as error:
            raise SinkUnavailable(f"topic {self.topic}: {describe(error_of(error))}", unknown=False) from error
        return marks

    def _find(self, where: TopicPartition, tokens: list[UUID], patience: Patience, wait: bool) -> dict[UUID, Mark]:
        with self._consumer("read_uncommitted") as consumer:
            start = _offset_of(consumer, where, min(made_ms(token) or 0 for token in tokens), patience)
            end = _end(consumer, where, patience)
            written = [at for at, token, _ in self._read(consumer, where, start, end, patience) if token in tokens]
        if not written:
            return {}
        with self._consumer("read_committed") as consumer:
            end = written[-1] + 1 if wait else min(written[-1] + 1, _end(consumer, where, patience))
            found = self._read(consumer, where, written[0], end, patience)
            return {token: mark for _, token, mark in found if token in tokens}

    def _read(
        self, consumer: Consumer, where: TopicPartition, start: int, end: int, patience: Patience
    ) -> Iterator[tuple[int, UUID, Mark]]:
        """Offset, token and mark of the records from `start` to before `end`."""
        if start < end:
            consumer.assign([TopicPartition(self.topic, where.partition, start)])
        position = start
        while position < end:
            if patience.over:
                raise SinkUnavailable(f"topic {self.topic}: open transactions did not end in time", unknown=False)
            for message in consumer.consume(1000, timeout=patience.slice()):
                error = message.error()
                if error is not None and error.name() == "GROUP_AUTHORIZATION_FAILED":
                    continue  # no group is used
                if error is not None:
                    raise KafkaException(error)
                if (offset := message.offset() or 0) < end:
                    yield offset, UUID(bytes=bytes(message.key() or b"")), Mark.from_text(_text(message.value()))
            # The end of a transaction takes an offset too, and nobody gets to see it.
            (reached,) = consumer.position([where])
            position = max(position, reached.offset)

    def _partition(self, token: UUID) -> int:
        return int.from_bytes(identity_of(token)[-4:]) % self._partitions

    def _create(self, patience: Patience) -> None:
        admin = AdminClient(self._options, logger=log)
        topic = NewTopic(self.topic, num_partitions=PARTITIONS, replication_factor=-1, config=dict(CONFIG))
        try:
            admin.create_topics([topic])[self.topic].result(patience.left)
        except TimeoutError:
            raise SinkUnavailable(f"topic {self.topic} could not be made in time", unknown=False) from None
        except KafkaException as error:
            if error_of(error).name() != "TOPIC_ALREADY_EXISTS":
                reason = f"topic {self.topic} is missing and cannot be made: {describe(error_of(error))}"
                raise SinkUnavailable(reason, unknown=False) from error

    @contextmanager
    def _consumer(self, isolation: str) -> Iterator[Consumer]:
        reading = {
            "group.id": self.topic,  # librdkafka wants one; nothing is committed under it
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "fetch.wait.max.ms": 20,
            "log_level": 2,  # else it complains of each option that is for producers
        }
        consumer = Consumer({**self._options, **reading}, logger=log)
        try:
            yield consumer
        finally:
            consumer.close()


def _offset_of(consumer: Consumer, where: TopicPartition, time_ms: int, patience: Patience) -> int:
    """Of the first record that is as young."""
    asked = [TopicPartition(where.topic, where.partition, time_ms)]
    (found,) = consumer.offsets_for_times(asked, timeout=max(0.1, patience.left))
    return found.offset if found.offset >= 0 else 2**62


def _end(consumer: Consumer, where: TopicPartition, patience: Patience) -> int:
    """The offset behind the last record that this consumer may see."""
    end: int = consumer.get_watermark_offsets(where, timeout=max(0.1, patience.left))[1]
    return end


def _text(value: str | bytes | None) -> str:
    return value if isinstance(value, str) else (value or b"").decode()
