"""One librdkafka producer, and what it reports. Nothing here decides what becomes of a message."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaException, Producer

from sinks.base import SinkUnavailable
from sinks.kafka.errors import denied, describe, error_of
from sinks.kafka.log import library_log

SLICE_S: Final = 0.1
"""How long it waits at most before it looks whether to go on. From 0.2 s on confluent-kafka's `poll` waits to the end
even if something comes."""
ANSWER_S: Final = 0.5
"""How long it waits for an answer before it looks what its connections suffer from."""
STRAGGLERS_S: Final = 1.0
"""How long a producer that has given up may still report."""


class Record(NamedTuple):
    """What a message becomes. All that is handed to `produce`, and the size."""

    topic: str
    value: bytes | None
    key: bytes | None
    timestamp_ms: int
    headers: list[tuple[str, str | bytes | None]]
    size: int
    """At least as many bytes as it takes on the wire, uncompressed."""
    partition: int = -1
    """-1: by the key."""


class Refused(NamedTuple):
    """librdkafka itself did not take the message."""

    error: Any


class Unreported:
    """Handed over or not: no report came in time."""


UNREPORTED: Final = Unreported()

Report = Any
"""None: Kafka has it. Else a `KafkaError` of its delivery report, `Refused` or `UNREPORTED`."""


class Patience:
    """Until when to wait for the broker.

    Args:
        seconds: from now.
        stop: asked now and then; true ends the waiting at once.
    """

    def __init__(self, seconds: float, stop: Callable[[], bool]) -> None:
        self._until = time.monotonic() + seconds
        self._stop = stop

    @property
    def left(self) -> float:
        """Seconds; 0 when it is over."""
        return 0.0 if self._stop() else max(0.0, self._until - time.monotonic())

    @property
    def over(self) -> bool:
        return self.left == 0.0

    def slice(self) -> float:
        return min(SLICE_S, self.left)

    def part(self, share: float) -> Patience:
        """For what may take only so much of what is left."""
        return Patience(share * self.left, lambda: self.over)


class _Reports:
    """The reports of one `deliver`, and the callbacks that librdkafka gives them to."""

    def __init__(self) -> None:
        self._found: list[Report] = []
        self._failures: list[int] = []
        self._callbacks: list[Callable[[Any, Any], None]] = []

    def expect(self, records: int) -> tuple[list[Report], list[int], list[Callable[[Any, Any], None]]]:
        """For so many records: their reports, the positions that fail, both filled by the callbacks, one a record."""
        self._found, self._failures = [UNREPORTED] * records, []
        for position in range(len(self._callbacks), records):
            self._callbacks.append(partial(self._note, position))
        return self._found, self._failures, self._callbacks

    def _note(self, position: int, error: Any, _message: Any) -> None:
        self._found[position] = error
        if error is not None:
            self._failures.append(position)


class KafkaClient:
    """A producer, from its making to its end.

    Raises:
        ValueError: librdkafka does not take the options.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.fatal: Any | None = None
        """The `KafkaError` for which this producer will send nothing more."""
        self.trouble: str | None = None
        """What the connections suffer from, in one line; None while nothing was heard."""
        self.denied = False
        """Whether a broker does not let this client in."""
        self.down = False
        """Whether no broker could be reached."""
        self._reports: _Reports | None = None
        """To be used again, as making the callbacks is dear. None while some report may still come to them."""
        try:
            self.producer = Producer({**options, "error_cb": self._heard, "logger": library_log})
        except KafkaException as error:
            raise ValueError(f"options that librdkafka takes: {error_of(error).str()}") from None

    def connect(self, patience: Patience) -> None:
        """Wait until some broker answers.

        Raises:
            SinkUnavailable: none does, or none lets us in.
        """
        self._ask(lambda seconds: self.producer.cluster_id(timeout=seconds), patience)

    def topic(self, name: str, patience: Patience) -> Any:
        """A topic's metadata; its `error` says why it cannot be written to. Brings librdkafka's own knowledge of the
        topic up to date too.

        Raises:
            SinkUnavailable: no broker answers, or none lets us in.
        """
        return self._ask(lambda seconds: self.producer.list_topics(name, timeout=seconds), patience).topics[name]

    def poll(self, seconds: float = 0.0) -> None:
        """Serve what librdkafka has to say."""
        try:
            self.producer.poll(seconds)
        except KafkaException as error:
            self._gave_up(error_of(error))

    def deliver(
        self, records: Sequence[Record], patience: Patience, *, ordered: bool = False, together: bool = False
    ) -> list[Report]:
        """Send, and wait for a report of each record.

        Args:
            ordered: of a key of which librdkafka refused one, hand over no more.
            together: all or nothing, so after a failure the rest need no report.
        """
        expected, self._reports = self._reports or _Reports(), None
        reports, failures, callbacks = expected.expect(len(records))
        self.trouble = None
        self.denied = self.down = False
        produce = self.producer.produce
        stuck: set[bytes | None] = set()
        for (topic, value, key, timestamp, headers, _, partition), report in zip(records, callbacks, strict=False):
            if key in stuck:
                continue
            # By position: keywords would cost another quarter of a microsecond.
            arguments = (topic, value, key, partition, report, None, timestamp, headers)
            try:
                try:
                    produce(*arguments)
                except BufferError:
                    if not self._produce_later(arguments, patience):
                        return reports
            except KafkaException as error:
                report(self._refused(error_of(error)), None)
                if ordered and key is not None:
                    stuck.add(key)
        self._await_reports(reports, failures if together else [], patience)
        if all(report is not UNREPORTED for report in reports):
            self._reports = expected
        return reports

    def _produce_later(self, arguments: tuple[Any, ...], patience: Patience) -> bool:
        """The queue is full. That is no failure, but a reason to wait for reports; False where none came."""
        while not patience.over:
            self._unreported(patience.slice())
            try:
                self.producer.produce(*arguments)
            except BufferError:
                continue
            return True
        return False

    def _await_reports(self, reports: Sequence[Report], failures: Sequence[int], patience: Patience) -> None:
        """
        Args:
            failures: fills up; the first one ends the waiting.
        """
        while self._unreported(patience.slice()) and not patience.over and not failures:
            if self.fatal is not None:
                self._unreported(min(STRAGGLERS_S, patience.left))
                return
            if self.denied and all(report is UNREPORTED for report in reports):
                return

    def _unreported(self, seconds: float) -> int:
        try:
            return self.producer.flush(seconds)
        except KafkaException as error:
            self._gave_up(error_of(error))
            return len(self.producer)

    def _refused(self, error: Any) -> Refused:
        if error.name() == "_FATAL" and self.fatal is None:
            self.fatal = error  # why, it has said already, or says at the next poll
        return Refused(error)

    def discard(self) -> None:
        """End it now. What it still holds is not sent; what is on the way may arrive."""
        try:
            self.producer.purge()
            self.producer.poll(0)
        except KafkaException:
            pass  # it had given up, and says so once more
        del self.producer

    def _ask(self, question: Callable[[float], Any], patience: Patience) -> Any:
        self.denied = self.down = False
        while True:
            try:
                return question(min(ANSWER_S, max(0.01, patience.left)))
            except KafkaException as error:
                self.poll()
                if self.denied or self.down or patience.over:
                    raise SinkUnavailable(self.trouble or describe(error_of(error)), unknown=False) from error

    def _heard(self, error: Any) -> None:
        self.trouble = describe(error) if self.trouble is None or error.name() != "_ALL_BROKERS_DOWN" else self.trouble
        self.denied = self.denied or denied(error)
        self.down = self.down or error.name() == "_ALL_BROKERS_DOWN"

    def _gave_up(self, error: Any) -> None:
        if not error.fatal():
            raise KafkaException(error)
        self.fatal = error
