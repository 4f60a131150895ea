"""The topic that tells what became of claims: a record a transaction, committed with it or not at all.

Key: the claim's token. Value: a mark; the last one of a token counts. A token tells in which partition its marks are,
and from which offset on (`marks`). The topic belongs to one sink, so that nobody else's open transaction can
keep a look-up waiting.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from uuid import UUID

from confluent_kafka import Consumer, KafkaException, TopicPartition

from sinks.base import SinkUnavailable
from sinks.kafka.client import Patience, Record
from sinks.kafka.errors import describe, error_of, missing
from sinks.kafka.log import library_log, log
from sinks.kafka.marks import PARTITIONS, Mark, Place, place_of, tag_of
from sinks.kafka.topics import Admin, Topic

NEW_PARTITIONS: Final = 8
RETENTION_MS: Final = 7 * 24 * 3600 * 1000
"""How long it is known what became of a claim: longer than a stalled sender could stay asleep."""
CONFIG: Final = {
    "cleanup.policy": "delete",
    "retention.ms": str(RETENTION_MS),
    "retention.bytes": "-1",
    # The brokers' clock alone tells how old a mark is.
    "message.timestamp.type": "LogAppendTime",
}
_KEY_BYTES: Final = 16
_HARMLESS: Final = frozenset({"GROUP_AUTHORIZATION_FAILED", "_TRANSPORT", "_ALL_BROKERS_DOWN"})
"""No group is used; and a broker that cannot be reached now may be in a moment, or another leads."""


class Claims:
    """
    Args:
        options: of the sink's producers.
        topic: its name.
    """

    def __init__(self, admin: Admin, options: Mapping[str, Any], topic: str) -> None:
        self._admin = admin
        self._options = {name: value for name, value in options.items() if name != "enable.idempotence"}
        self.topic = topic
        self._found: Topic | None = None
        self._strangers_told = False

    def prepare(self, patience: Patience) -> None:
        """Make sure that the topic is there, and is what it should be.

        Raises:
            SinkUnavailable: it is not there, and cannot be made.
        """
        before, self._found = self._found, self._described(patience)
        if before is not None and before.id == self._found.id:
            return
        if before is not None:
            log.warning(
                "topic %s was replaced by another of its name: what became of the claims that were under way is not"
                " known, and their messages may arrive twice",
                self.topic,
            )
        self._check_options()

    def place(self, before: Place | None, patience: Patience) -> Place:
        """Where a sender is to leave its marks from now on.

        Args:
            before: where it does now.

        Raises:
            SinkUnavailable: no answer.
        """
        led = [at for at in self._found.led if at < PARTITIONS] if self._found else []
        tag = self._tag
        stays = before is not None and before.tag == tag and before.partition in led
        partition = before.partition if before is not None and stays else random.choice(led or [0])
        return Place(partition, self._admin.end(self.topic, partition, patience), tag)

    def forgotten(self, token: UUID) -> bool:
        """Whether its marks were in another topic, so that nothing can be found of it."""
        return place_of(token).tag not in {None, self._tag}

    @property
    def _tag(self) -> int | None:
        return tag_of(self._found.id) if self._found else None

    def record(self, token: UUID, mark: Mark, time_ms: int) -> Record:
        """What tells of a claim.

        Args:
            time_ms: now, by the database's clock.
        """
        value = mark.to_text().encode()
        return Record(self.topic, value, token.bytes, time_ms, [], len(value) + 128, place_of(token).partition)

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
            if not self.forgotten(token):
                groups.setdefault(place_of(token).partition, []).append(token)
        marks: dict[UUID, Mark] = {}
        try:
            for partition, group in groups.items():
                marks |= self._find(TopicPartition(self.topic, partition), group, patience, wait)
        except KafkaException as error:
            raise SinkUnavailable(f"topic {self.topic}: {describe(error_of(error))}", unknown=False) from error
        return marks

    def _find(self, where: TopicPartition, tokens: list[UUID], patience: Patience, wait: bool) -> dict[UUID, Mark]:
        keys = {token.bytes: token for token in tokens}
        with self._consumer("read_uncommitted") as consumer:
            first, end = _offsets(consumer, where, patience)
            start = max(first, min(place_of(token).offset for token in tokens))
            written = [at for at, _, _ in self._read(consumer, where, start, end, keys, patience)]
        if not written:
            return {}
        with self._consumer("read_committed") as consumer:
            end = written[-1] + 1 if wait else min(written[-1] + 1, _offsets(consumer, where, patience)[1])
            found = self._read(consumer, where, written[0], end, keys, patience)
            return {keys[key]: mark for _, key, mark in found}

    def _read(
        self,
        consumer: Consumer,
        where: TopicPartition,
        start: int,
        end: int,
        keys: Collection[bytes],
        patience: Patience,
    ) -> Iterator[tuple[int, bytes, Mark]]:
        """Offset, key and mark of the records with these keys from `start` to before `end`."""
        if start < end:
            consumer.assign([TopicPartition(self.topic, where.partition, start)])
        position = start
        while position < end:
            if patience.over:
                reason = f"a transaction is open in partition {where.partition}, or no answer in time"
                raise SinkUnavailable(f"topic {self.topic}: {reason}", unknown=False)
            for message in consumer.consume(1000, timeout=patience.slice()):
                error = message.error()
                if error is not None and error.name() in _HARMLESS:
                    continue
                if error is not None:
                    raise KafkaException(error)
                offset = message.offset() or 0
                key = bytes(message.key() or b"")
                if key in keys and offset < end and (mark := self._mark(message)) is not None:
                    yield offset, key, mark
                elif len(key) != _KEY_BYTES:
                    self._tell_of_strangers(message)
            # The end of a transaction takes an offset too, and nobody gets to see it.
            (reached,) = consumer.position([where])
            position = max(position, reached.offset)

    def _mark(self, message: Any) -> Mark | None:
        """What a record holds; None where somebody else wrote it."""
        try:
            return Mark.from_text((message.value() or b"").decode())
        except ValueError:
            self._tell_of_strangers(message)
            return None

    def _tell_of_strangers(self, message: Any) -> None:
        if not self._strangers_told:
            self._strangers_told = True
            template = "topic %s holds records that no relay wrote, such as partition %d, offset %d: they are skipped"
            log.warning(template, self.topic, message.partition(), message.offset())

    def _described(self, patience: Patience) -> Topic:
        created = False
        while True:
            found = self._admin.describe([self.topic], patience)[self.topic]
            # One that was just made may take a moment to turn up, and to get leaders.
            if isinstance(found, Topic) and (found.led if not created else len(found.led) == found.partitions):
                return found
            if not isinstance(found, Topic) and not missing(found):
                raise SinkUnavailable(f"topic {self.topic}: {describe(found)}", unknown=False)
            if not isinstance(found, Topic) and not created:
                self._create(patience)
                created = True
            elif patience.over:
                raise SinkUnavailable(f"topic {self.topic} has no leader", unknown=False)
            else:
                self._admin.wait(patience)

    def _create(self, patience: Patience) -> None:
        error = self._admin.create(self.topic, NEW_PARTITIONS, CONFIG, patience)
        if error is not None:
            reason = f"topic {self.topic} is missing and cannot be made: {describe(error)}"
            raise SinkUnavailable(reason, unknown=False)

    def _check_options(self) -> None:
        """Say where somebody else made it, and otherwise than it should be."""
        options = self._admin.options(self.topic) or {}
        for option, expected in CONFIG.items():
            if not _fits(option, found := options.get(option, expected), expected):
                log.warning("topic %s: %s is %s; expected %s", self.topic, option, found, expected)

    @contextmanager
    def _consumer(self, isolation: str) -> Iterator[Consumer]:
        reading = {
            "group.id": self.topic,  # librdkafka wants one; nothing is committed under it
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",  # what has just been deleted is no reason to read nothing
            "isolation.level": isolation,
            "fetch.wait.max.ms": 20,
            "log_level": 2,  # else it complains of each option that is for producers
        }
        consumer = Consumer({**self._options, **reading}, logger=library_log)
        try:
            yield consumer
        finally:
            consumer.close()


def _fits(option: str, found: str, expected: str) -> bool:
    if option == "retention.ms":
        return int(found) == -1 or int(found) >= int(expected)
    return found == expected


def _offsets(consumer: Consumer, where: TopicPartition, patience: Patience) -> tuple[int, int]:
    """Of the first record, and behind the last one that this consumer may see."""
    first, end = consumer.get_watermark_offsets(where, timeout=max(0.1, patience.left))
    return first, end
