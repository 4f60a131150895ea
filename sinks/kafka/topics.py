"""What Kafka says of topics, and which of them can be written to, found out before anything is sent to them.

librdkafka asks again for a topic that it knows to be missing or denied only at its next refresh, minutes later. So
the sink asks for each topic that is new, or was unwell last time: one request, about a millisecond. It waits for none
to turn up: where the cluster creates topics itself, the question makes it do so, and the message's next try finds it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from sinks.base import SinkUnavailable
from sinks.kafka.client import KafkaClient, Patience
from sinks.kafka.errors import describe, error_of
from sinks.kafka.log import library_log, log

ONE_BY_ONE: Final = 20
"""Beyond so many, topics are asked for in one request for all, which makes no cluster create them: a thousand topics
that are missing must not delay what goes to others."""
REMEMBERED: Final = 10_000
_PRODUCERS_ONLY: Final = frozenset({"transactional.id", "transaction.timeout.ms", "enable.idempotence"})
_NO_ANSWER: Final = frozenset({"_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_DESTROY"})
_MOVES: Final = frozenset({"NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PART"})
"""A topic was just made, or another broker leads it from now on."""


class Topic(NamedTuple):
    """What Kafka says of a topic."""

    id: str
    led: list[int]
    """Partitions that have a leader."""
    partitions: int


class Admin:
    """Asks about topics in a way that makes none: a cluster may create a topic that a producer asks for.

    Args:
        options: of the sink's producers.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = {name: value for name, value in options.items() if name not in _PRODUCERS_ONLY}
        self._client: AdminClient | None = None

    def close(self) -> None:
        self._client = None

    def ask(self, patience: Patience) -> None:
        """Ask for a sign of life. What librdkafka remembers of a cluster would be none.

        Raises:
            SinkUnavailable: no answer.
        """
        try:
            _answer(self._admin().describe_cluster(request_timeout=_seconds(patience)), patience)
        except KafkaException as error:
            raise SinkUnavailable(describe(error_of(error)), unknown=False) from error

    def wait(self, patience: Patience) -> None:
        """Until it makes sense to ask again."""
        self._admin().poll(patience.slice())

    def describe(self, names: Collection[str], patience: Patience) -> dict[str, Topic | Any]:
        """By name: the topic, or the `KafkaError` for which there is none.

        Raises:
            SinkUnavailable: no answer.
        """
        found: dict[str, Topic | Any] = {}
        asked = TopicCollection(list(names))
        for name, future in self._admin().describe_topics(asked, request_timeout=_seconds(patience)).items():
            try:
                topic = _answer(future, patience)
            except KafkaException as error:
                if error_of(error).name() in _NO_ANSWER:
                    raise SinkUnavailable(describe(error_of(error)), unknown=False) from error
                found[name] = error_of(error)
            else:
                led = [one.id for one in topic.partitions if one.leader is not None and one.leader.id >= 0]
                found[name] = Topic(str(topic.topic_id), led, len(topic.partitions))
        return found

    def create(self, name: str, partitions: int, options: Mapping[str, str], patience: Patience) -> Any | None:
        """Make a topic with the cluster's own number of replicas.

        Returns:
            The `KafkaError` for which it cannot be made; None where it is there now.

        Raises:
            SinkUnavailable: no answer.
        """
        topic = NewTopic(name, num_partitions=partitions, replication_factor=-1, config=dict(options))
        try:
            _answer(self._admin().create_topics([topic])[name], patience)
        except KafkaException as error:
            if error_of(error).name() != "TOPIC_ALREADY_EXISTS":
                return error_of(error)
        return None

    def options(self, name: str, seconds: float = 2.0) -> dict[str, str] | None:
        """A topic's configuration; None where Kafka does not tell (DESCRIBE_CONFIGS)."""
        resource = ConfigResource(ResourceType.TOPIC, name)
        try:
            found = self._admin().describe_configs([resource], request_timeout=seconds)[resource].result(seconds)
        except (KafkaException, TimeoutError) as error:
            log.info("configuration of topic %s is not known: %s", name, error)
            return None
        return {option: str(entry.value) for option, entry in found.items()}

    def end(self, topic: str, partition: int, patience: Patience) -> int:
        """The offset behind a partition's last record.

        Raises:
            SinkUnavailable: no answer.
        """
        where = TopicPartition(topic, partition)
        asked = {where: OffsetSpec.latest()}  # type: ignore[no-untyped-call]
        while True:
            try:
                futures = self._admin().list_offsets(asked, request_timeout=_seconds(patience))
                offset: int = _answer(futures[where], patience).offset
            except KafkaException as error:
                if error_of(error).name() not in _MOVES or patience.over:
                    raise SinkUnavailable(f"topic {topic}: {describe(error_of(error))}", unknown=False) from error
                self.wait(patience)
            else:
                return offset

    def _admin(self) -> AdminClient:
        if self._client is None:
            self._client = AdminClient(self._options, logger=library_log)
        return self._client


class Topics:
    """What is known of the topics of one sink."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._well: set[str] = set()
        self._unwell: set[str] = set()
        self._limits: dict[str, int | None] = {}

    def unwell(self, client: KafkaClient, topics: Iterable[str], patience: Patience) -> dict[str, Any]:
        """The `KafkaError` of each topic that cannot be written to.

        Raises:
            SinkUnavailable: no broker answers.
        """
        # The new ones first: what was missing a moment ago is likely to be missing still.
        asked = sorted(set(topics) - self._well, key=self._unwell.__contains__)
        now, later = asked[:ONE_BY_ONE], asked[ONE_BY_ONE:]
        errors = self._described(later, patience) if later else {}
        # Where one is there that was not, librdkafka has to learn it too.
        now += [topic for topic in later if topic not in errors and topic in self._unwell]
        errors |= {topic: error for topic in now if (error := client.topic(topic, patience).error) is not None}
        if len(self._unwell) + len(self._well) > REMEMBERED:
            self.forget()
        self._well.update(topic for topic in asked if topic not in errors)
        self._unwell.difference_update(self._well)
        self._unwell |= errors.keys()
        return errors

    def failed(self, topic: str) -> None:
        """A message for it failed: ask before the next one."""
        self._well.discard(topic)

    def forget(self) -> None:
        """Ask for all of them again."""
        self._well.clear()
        self._unwell.clear()
        self._limits.clear()

    def limit(self, topic: str) -> int | None:
        """Bytes that the topic takes in one record batch; None where Kafka does not tell (DESCRIBE_CONFIGS)."""
        if topic not in self._limits:
            options = self._admin.options(topic)
            self._limits[topic] = None if options is None else int(options["max.message.bytes"])
        return self._limits[topic]

    def _described(self, topics: list[str], patience: Patience) -> dict[str, Any]:
        found = self._admin.describe(topics, patience)
        return {topic: error for topic, error in found.items() if not isinstance(error, Topic)}


def _seconds(patience: Patience) -> float:
    return max(0.1, patience.left)


def _answer(future: Future[Any], patience: Patience) -> Any:
    """
    Raises:
        KafkaException: what Kafka, or librdkafka, has against it.
        SinkUnavailable: no answer in time.
    """
    while True:
        try:
            return future.result(max(0.01, patience.slice()))
        except TimeoutError:
            if patience.over:
                raise SinkUnavailable("no answer in time", unknown=False) from None
