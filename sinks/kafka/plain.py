"""Sending without transactions: at least once."""

from __future__ import annotations

from typing import Any, Final

from sinks.base import DELIVERED, Batch
from sinks.kafka.client import KafkaClient, Patience
from sinks.kafka.errors import describe
from sinks.kafka.judge import Judge
from sinks.kafka.log import log
from sinks.kafka.work import Work

PRODUCERS_A_SEND: Final = 4
"""So many producers one `send` may lose to fatal errors before it leaves the rest to the next one."""


class PlainSender:
    """An idempotent producer, and a second one for messages that must travel alone."""

    def __init__(self, judge: Judge, *, ordered: bool) -> None:
        self.fatal_producers = 0
        """How many producers ended with a fatal error and were replaced."""
        self._judge = judge
        self._ordered = ordered
        self._batching: KafkaClient | None = None
        self._batch_bytes = 0
        self._alone: KafkaClient | None = None

    def open(self, patience: Patience) -> None:
        """
        Raises:
            SinkUnavailable: no broker answers.
        """
        self._client(alone=False).connect(patience)

    def close(self) -> None:
        """End both producers now; what they hold is not sent."""
        for client in (self._batching, self._alone):
            if client is not None:
                client.discard()
        self._batching = self._alone = None

    def send(self, work: Work, batch: Batch, patience: Patience) -> None:
        """Give every message its outcome, unless the claim was lost.

        Raises:
            SinkUnavailable: nothing was delivered.
        """
        self._judge.hold_unwell(work, self._client(alone=False), patience)
        reason = "no answer in time"
        lost_producers = 0
        while lost_producers < PRODUCERS_A_SEND and not patience.over:
            wave = work.wave(self._judge.limits)
            if not wave.positions:
                break
            client = self._client(wave.alone)
            before = work.progress()
            reports = client.deliver([work.record(p) for p in wave.positions], patience, ordered=self._ordered)
            for position in self._judge.judge(work, wave, reports):
                work.outcomes[position] = DELIVERED
            reason = client.trouble or reason
            if client.fatal is not None:
                lost_producers += 1
                reason = describe(client.fatal)
                self._replace(work, client.fatal)
            elif work.progress() == before:
                break
        if work.undecided():
            self.close()  # else they might leave later, on their own
            if not batch.lost():
                self._judge.conclude(work, reason, unknown=True)

    def _replace(self, work: Work, fatal: Any) -> None:
        self.fatal_producers += 1
        log.warning("producer is replaced after a fatal error: %s", describe(fatal))
        self.close()
        self._judge.give_up(work, fatal)

    def _client(self, alone: bool) -> KafkaClient:
        options = self._judge.options
        if alone:
            if self._alone is None:
                self._alone = KafkaClient({**options, "batch.num.messages": 1})
            return self._alone
        if self._batching is not None and self._batch_bytes != options["batch.size"]:
            self._batching.discard()
            self._batching = None
        if self._batching is None:
            self._batching = KafkaClient(options)
            self._batch_bytes = options["batch.size"]
        return self._batching
