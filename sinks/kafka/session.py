"""One transactional identity, from when it is taken over to its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException

from sinks.base import SinkUnavailable
from sinks.kafka.client import KafkaClient, Patience, log
from sinks.kafka.errors import describe, error_of


class CommitInDoubt(SinkUnavailable):
    """It is not known whether a transaction was committed."""


class Session:
    """A transactional producer under a name that nobody else sends under from now on: whatever was open under it is
    ended, and its earlier sender is refused.

    Nothing here calls `send_offsets_to_transaction`: it may block for ever (librdkafka issues 5456 and 5511).

    Args:
        name: transactional id.

    Raises:
        SinkUnavailable: no broker answers.
        KafkaException: Kafka does not hand the name over.
    """

    def __init__(self, name: str, options: Mapping[str, Any], patience: Patience) -> None:
        self.client = KafkaClient({**options, "transactional.id": name})
        try:
            self.client.connect(patience)
            self.client.producer.init_transactions(patience.left)
        except BaseException:
            self.client.discard()
            raise

    def begin(self) -> None:
        self.client.producer.begin_transaction()

    def commit(self, patience: Patience) -> None:
        """Commit what was sent since `begin`.

        Raises:
            CommitInDoubt: it may be done or not.
            KafkaException: it is not.
        """
        try:
            self.client.producer.commit_transaction(patience.left)
        except KafkaException as error:
            if error_of(error).txn_requires_abort():
                raise
            raise CommitInDoubt(f"commit: {describe(error_of(error))}", unknown=True) from error

    def end(self, patience: Patience | None = None) -> None:
        """Send nothing more. With `patience`, abort what is open first, as far as that is quick."""
        if patience is not None:
            try:
                self.client.producer.abort_transaction(min(1.0, patience.left))
            except KafkaException as error:
                # Kafka aborts it when the name is taken over, or after transaction.timeout.ms.
                log.info("transaction was not aborted: %s", describe(error_of(error)))
        self.client.discard()
