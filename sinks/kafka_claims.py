"""The topic that tells what became of claims: a record a transaction, committed with it or not at all.

Key: the claim's token. Value: a mark (`kafka_marks`); the last one of a token counts. Timestamp: when the token was
made, so that a look-up starts there and reads no more than what was sent since. A sender writes to one partition.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from uuid import UUID

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from sinks.base import SinkUnavailable
from sinks.kafka_client import KafkaClient, Patience, Record, log
from sinks.kafka_errors import describe, error_of, missing
from sinks.kafka_marks import Mark
from sinks.kafka_tokens import identity_of, made_ms

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
        """The marks of those tokens that have one.

        Args:
            wait: for transactions that are open now, else marks behind the first record of one are not found.

        Raises:
            SinkUnavailable: no answer in time.
        """
        try:
            with self._consumer("read_uncommitted" if wait else "read_committed") as consumer:
                ends = self._ends(consumer, {self._partition(token) for token in tokens}, patience)
                starts = self._starts(consumer, tokens, patience)
            with self._consumer("read_committed") as consumer:
                return dict(self._read(consumer, starts, ends, tokens, patience))
        except KafkaException as error:
            raise SinkUnavailable(f"topic {self.topic}: {describe(error_of(error))}", unknown=False) from error

    def _partition(self, token: UUID) -> int:
        return int.from_bytes(identity_of(token)[-4:]) % self._partitions

    def _ends(self, consumer: Consumer, partitions: Iterable[int], patience: Patience) -> dict[int, int]:
        """The offsets up to which to read, of partitions that are not empty."""
        ends = {}
        for partition in partitions:
            seconds = max(0.1, patience.left)
            low, high = consumer.get_watermark_offsets(TopicPartition(self.topic, partition), timeout=seconds)
            if high > low:
                ends[partition] = high
        return ends

    def _starts(self, consumer: Consumer, tokens: Iterable[UUID], patience: Patience) -> dict[int, int]:
        """The offsets from which to read: where the oldest token of a partition could be."""
        oldest: dict[int, int] = {}
        for token in tokens:
            partition = self._partition(token)
            oldest[partition] = min(made_ms(token) or 0, oldest.get(partition, 2**62))
        times = [TopicPartition(self.topic, partition, time_ms) for partition, time_ms in oldest.items()]
        found = consumer.offsets_for_times(times, timeout=max(0.1, patience.left))
        # -1: nothing is as young, so nothing is to be read.
        return {start.partition: start.offset for start in found if start.offset >= 0}

    def _read(
        self,
        consumer: Consumer,
        starts: Mapping[int, int],
        ends: Mapping[int, int],
        tokens: Collection[UUID],
        patience: Patience,
    ) -> Iterator[tuple[UUID, Mark]]:
        waiting = {partition: end for partition, end in ends.items() if starts.get(partition, end) < end}
        consumer.assign([TopicPartition(self.topic, partition, starts[partition]) for partition in waiting])
        while waiting:
            if patience.over:
                raise SinkUnavailable(f"topic {self.topic}: open transactions did not end in time", unknown=False)
            for message in consumer.consume(1000, timeout=patience.slice()):
                if message.error():
                    raise KafkaException(message.error())
                token = UUID(bytes=bytes(message.key() or b""))
                if token in tokens:
                    yield token, Mark.from_text((message.value() or b"").decode())
            for position in consumer.position([TopicPartition(self.topic, partition) for partition in waiting]):
                if position.offset >= waiting[position.partition]:
                    del waiting[position.partition]

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
