"""Which topics can be written to, found out before anything is sent to them.

librdkafka asks again for a topic that it knows to be missing or denied only at its next refresh, minutes later. So
the sink asks for each topic that is new, or was unwell last time: one request, about a millisecond.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from sinks.kafka.client import KafkaClient, Patience, log
from sinks.kafka.errors import missing

CREATION_S: Final = 1.0
"""How long a topic that is asked for the first time may take to turn up, where the cluster creates topics itself."""
_PRODUCERS_ONLY: Final = frozenset({"transactional.id", "transaction.timeout.ms", "enable.idempotence"})


class Topics:
    """What is known of the topics of one sink.

    Args:
        options: of the sink's producers.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = {name: value for name, value in options.items() if name not in _PRODUCERS_ONLY}
        self._well: set[str] = set()
        self._missing: set[str] = set()
        self._limits: dict[str, int | None] = {}

    def unwell(self, client: KafkaClient, topics: Iterable[str], patience: Patience) -> dict[str, Any]:
        """The `KafkaError` of each topic that cannot be written to.

        Raises:
            SinkUnavailable: no broker answers.
        """
        errors = self._ask(client, set(topics) - self._well, patience)
        creation = Patience(min(CREATION_S, patience.left), lambda: patience.over)
        while (new := {topic for topic, error in errors.items() if missing(error)} - self._missing) and creation.left:
            client.poll(creation.slice())
            errors = {topic: error for topic, error in errors.items() if topic not in new}
            errors |= self._ask(client, new, patience)
        self._missing |= errors.keys()
        return errors

    def failed(self, topic: str) -> None:
        """A message for it failed: ask before the next one."""
        self._well.discard(topic)

    def forget(self) -> None:
        """Ask for all of them again."""
        self.__init__(self._options)  # type: ignore[misc]

    def limit(self, topic: str, seconds: float = 2.0) -> int | None:
        """Bytes that the topic takes in one record batch; None where Kafka does not tell (DESCRIBE_CONFIGS)."""
        if topic not in self._limits:
            resource = ConfigResource(ResourceType.TOPIC, topic)
            try:
                admin = AdminClient(self._options, logger=log)
                found = admin.describe_configs([resource], request_timeout=seconds)[resource].result(seconds)
                self._limits[topic] = int(found["max.message.bytes"].value)
            except (KafkaException, TimeoutError) as error:
                log.info("limit of topic %s is not known: %s", topic, error)
                self._limits[topic] = None
        return self._limits[topic]

    def _ask(self, client: KafkaClient, topics: Iterable[str], patience: Patience) -> dict[str, Any]:
        errors: dict[str, Any] = {}
        for topic in topics:
            error = client.topic(topic, patience).error
            if error is None:
                self._well.add(topic)
                self._missing.discard(topic)
            else:
                errors[topic] = error
        return errors
