"""One transactional identity, from when it is taken over to its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaException

from sinks.base import SinkUnavailable
from sinks.kafka.client import KafkaClient, Patience
from sinks.kafka.errors import describe, error_of
from sinks.kafka.log import log
from sinks.kafka.options import shorten_transactions

FINISH_S: Final = 1.0


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
        self._finish: Callable[[float], None] | None = None
        """What ends the transaction that is open; None: there is none."""
        try:
            self.client.connect(patience)
            self.client.producer.init_transactions(patience.left)
        except BaseException:
            self.client.discard()
            raise

    def begin(self) -> None:
        self.client.producer.begin_transaction()
        self._finish = self.client.producer.abort_transaction

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
            self._finish = self.client.producer.commit_transaction  # that goes on with it
            raise CommitInDoubt(f"commit: {describe(error_of(error))}", unknown=True) from error
        self._finish = None

    def end(self) -> None:
        """Send nothing more. Abort what is open, or commit it where that was begun, as far as that is quick.

        The sender's own time may be over by now. But whoever reads committed records only stands still at an open
        transaction, and a relay that stops never comes back to end it.
        """
        if self._finish is not None:
            try:
                self._finish(FINISH_S)
            except KafkaException as error:
                # Kafka ends it when the name is taken over, or after transaction.timeout.ms.
                log.info("transaction was not ended: %s", describe(error_of(error)))
        self.client.discard()


def take_over(sink: str, identity: bytes, options: dict[str, Any], patience: Patience, *, alone: bool) -> Session:
    """Become the sender with this identity.

    Args:
        options: of the sink's producers; where Kafka takes no transactions as long, they are made shorter.
        alone: whether each message is to be in a record batch of its own.

    Raises:
        SinkUnavailable: no broker answers.
        KafkaException: Kafka does not hand the identity over.
    """
    while True:
        changed = {"batch.num.messages": 1} if alone else {}
        try:
            return Session(f"outbox-relay.{sink}.{identity.hex()}", {**options, **changed}, patience)
        except KafkaException as error:
            if not shorten_transactions(options, error_of(error)):
                raise
        log.info("transaction.timeout.ms is %d from now on: Kafka takes no more", options["transaction.timeout.ms"])
