"""From delivery reports to outcomes, the same with transactions and without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sinks.base import DELIVERED, Hold, Outcome, SinkUnavailable
from sinks.kafka.client import UNREPORTED, KafkaClient, Patience, Refused, Report
from sinks.kafka.errors import Meaning, describe, hold, meaning, outcome_alone, reject, too_large
from sinks.kafka.log import log
from sinks.kafka.topics import Admin, Topics
from sinks.kafka.work import Limits, Wave, Work

SMALLEST_BATCH_BYTES: Final = 10_000
SLACK_BYTES: Final = 1000
"""What a record batch takes beside its records, and more."""


class Judge:
    """Knows one sink's topics, and how large a record batch they take.

    Args:
        options: of the sink's producers; `batch.size` shrinks where a topic takes less.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.admin = Admin(options)
        self.topics = Topics(self.admin)
        self._refused_batches: set[str] = set()
        """Topics that found some record batch too large."""

    def close(self) -> None:
        """Forget what is known of topics, and end the connection that asked."""
        self.topics.forget()
        self.admin.close()

    @property
    def limits(self) -> Limits:
        """Of a record batch, as it is now: a refusal may have made it smaller."""
        size = min(int(self.options[name]) for name in ("batch.size", "message.max.bytes"))
        messages = min(int(self.options[name]) for name in ("batch.num.messages", "queue.buffering.max.messages"))
        queue = int(self.options["queue.buffering.max.kbytes"]) * 1024
        return Limits(max(1, min(size, queue) - SLACK_BYTES), messages)

    def hold_unwell(self, work: Work, client: KafkaClient, patience: Patience) -> None:
        """Decide the messages whose topics cannot be written to.

        Raises:
            SinkUnavailable: no broker answers.
        """
        errors = self.topics.unwell(client, {record.topic for record in work.records if record}, patience)
        for position in work.undecided() if errors else ():
            topic = work.record(position).topic
            if topic in errors:
                work.outcomes[position] = hold(errors[topic], topic)

    def judge(self, work: Work, wave: Wave, reports: Sequence[Report]) -> list[int]:
        """The positions that Kafka has. Of the others, those that need no further try get their outcomes."""
        if not any(reports) and not wave.alone:
            return wave.positions
        taken: list[int] = []
        for position, report in zip(wave.positions, reports, strict=True):
            if report is None:
                taken.append(position)
            elif report is not UNREPORTED:
                work.outcomes[position] = self._outcome(work, position, report, wave.alone)
        if wave.alone:
            self._shrink_batches({work.record(position).topic for position in taken})
        return taken

    def conclude(self, work: Work, reason: str, *, unknown: bool) -> None:
        """Decide what time did not suffice for.

        Args:
            unknown: whether it may have been delivered all the same.

        Raises:
            SinkUnavailable: nothing is known of any message.
        """
        undecided = work.undecided()
        if not undecided:
            return
        if all(outcome is None or isinstance(outcome, Hold) for outcome in work.outcomes):
            raise SinkUnavailable(reason, unknown=unknown)
        for position in undecided:
            topic = work.record(position).topic
            alive = DELIVERED in work.outcomes
            work.outcomes[position] = Hold(f"topic {topic}: {reason}", topic) if alive else Hold(reason)

    def give_up(self, work: Work, error: Any) -> None:
        """Decide what is left after a producer's fatal `error` that a new producer would meet too."""
        if meaning(error) is Meaning.CLUSTER:
            for position in work.undecided():
                work.outcomes[position] = Hold(describe(error))

    def _outcome(self, work: Work, position: int, report: Report, alone: bool) -> Outcome | None:
        record = work.record(position)
        error = report.error if isinstance(report, Refused) else report
        match meaning(error):
            case Meaning.SUSPECT if isinstance(report, Refused):
                limit = f"{self.options['message.max.bytes']} (message.max.bytes)"
                return reject(record.size, f"this client takes {limit}")
            case Meaning.SUSPECT if alone:
                limit, has_key = self._limit(record.topic), record.key is not None
                return outcome_alone(error, record.topic, record.size, limit, has_key=has_key)
            case Meaning.SUSPECT:
                if too_large(error):
                    self._refused_batches.add(record.topic)
                work.suspect(position)
                return None
            case Meaning.AGAIN | Meaning.UNKNOWN:
                return None
            case Meaning.CLUSTER | Meaning.TOPIC:
                self.topics.failed(record.topic)
                return hold(error, record.topic)

    def _limit(self, topic: str) -> str:
        limit = self.topics.limit(topic)
        return "less" if limit is None else f"{limit} (max.message.bytes)"

    def _shrink_batches(self, topics: set[str]) -> None:
        """These topics took messages alone that they had refused together: make smaller record batches from now on."""
        for topic in topics & self._refused_batches:
            now = int(self.options["batch.size"])
            smaller = max(SMALLEST_BATCH_BYTES, self.topics.limit(topic) or now // 2)
            if smaller < now:
                log.info("topic %s refuses record batches of %d bytes; from now on %d", topic, now, smaller)
                self.options["batch.size"] = smaller
