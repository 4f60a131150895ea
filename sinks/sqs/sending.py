"""One batch on its way to SQS: several calls in flight, every message's outcome by its own entry."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from sinks.base import DELIVERED, Batch, Hold, Outcome, SinkConfig
from sinks.sqs.batches import Batches
from sinks.sqs.client import Queue, Sender, SqsClient
from sinks.sqs.entries import Entry, EntryMaker
from sinks.sqs.errors import (
    NO_TIME,
    NOT_SPOKEN_OF,
    WAITS,
    Cause,
    Failed,
    NotSent,
    Refused,
    SqsError,
    Unanswered,
    failed_inside,
    known,
    outcome_of,
    refused_alone,
    told,
    too_large,
)
from sinks.sqs.fitting import fitting
from sinks.sqs.trouble import Trouble, later

log = logging.getLogger("sinks.sqs")

T = TypeVar("T")


class Sending:
    """Sends one batch. Only the thread that calls `run` touches its state; the answers come to it by a queue.

    Args:
        sender: asked once, after the queues were looked up.
    """

    def __init__(
        self,
        batch: Batch,
        config: SinkConfig,
        maker: EntryMaker,
        client: SqsClient,
        sender: Callable[[], Sender],
    ) -> None:
        self._batch = batch
        self._config = config
        self._maker = maker
        self._client = client
        self._new_sender = sender
        started = time.monotonic()
        self._deadline = started + config.send_timeout
        # A call needs time to be answered: none starts in the second half.
        self._last_start = started + config.send_timeout / 2
        self._outcomes: dict[int, Outcome] = {}
        self._queues: dict[str, Queue] = {}
        self._calls: Counter[str] = Counter()
        """In flight, by queue."""
        self.trouble = Trouble()
        self.abandoned = False
        """True where a call is still in flight whose answer nobody waits for."""

    def run(self) -> list[Outcome]:
        """
        Raises:
            SinkUnavailable: the service cannot be reached, and nothing is known of any message.
        """
        made = self._maker.make_all(self._batch)
        self._find_queues({entry.queue for entry in made if isinstance(entry, Entry)})
        entries, refused = fitting(self._batch.messages, made, self._refusal, ordered=self._config.ordered)
        self._outcomes.update(refused)
        self._batches = Batches(entries, self._limit, ordered=self._config.ordered)
        self._send_all()
        for entry in self._batches.rest():
            self._outcomes[entry.position] = self.trouble.stopped or NO_TIME
        for position, hold in self.trouble.of_messages():
            self._outcomes[position] = later(hold.reason, self._batch, position)
        outcomes = [self._outcomes[position] for position in range(len(self._batch.messages))]
        if self.trouble.unavailable and not any(map(known, outcomes)):
            raise self.trouble.unavailable
        return outcomes

    def _find_queues(self, names: Iterable[str]) -> None:
        self._found(self._client.credentials(), "")
        for name, future in [(name, self._client.queue(name)) for name in names]:
            queue = self._found(future, name)
            if queue is not None:
                self._queues[name] = queue

    def _found(self, future: Future[T], queue: str) -> T | None:
        try:
            return future.result(max(0.0, self._last_start - time.monotonic()))
        except TimeoutError:
            self.abandoned = not future.cancel() or self.abandoned
            self.trouble.not_sent(NotSent("no answer to a question about queue or credentials in time"))
        except SqsError as error:
            self._note(error, queue)
        return None

    def _refusal(self, entry: Entry) -> Outcome | None:
        if entry.queue not in self._queues:
            return self.trouble.unwell.get(entry.queue, self.trouble.stopped)
        limit = self._limit(entry.queue)
        return too_large(entry.size, limit) if entry.size > limit else None

    def _limit(self, queue: str) -> int:
        return self._queues[queue].limit

    def _send_all(self) -> None:
        if not self.trouble.stopped:
            try:
                self._sender = self._new_sender()
            except SqsError as error:
                self._note(error, "")
        flying: dict[Future[Mapping[str, Any]], list[Entry]] = {}
        answered: SimpleQueue[Future[Mapping[str, Any]]] = SimpleQueue()
        while True:
            while len(flying) < self._config.options.in_flight and (call := self._next_call()):
                future = self._start(call)
                flying[future] = call
                future.add_done_callback(answered.put)
            if not flying:
                return
            try:
                future = answered.get(timeout=max(0.0, self._deadline - time.monotonic()))
            except Empty:
                self._abandon(flying)
                return
            self._answered(flying.pop(future), future)

    def _abandon(self, flying: Mapping[Future[Mapping[str, Any]], list[Entry]]) -> None:
        self.abandoned = True
        # What never left knows it by now.
        self._sender.close()
        for future, call in flying.items():
            if future.done():
                self._answered(call, future)
            else:
                self._unanswered(call, Unanswered(f"no answer within {self._config.send_timeout:g} s"))

    def _next_call(self) -> list[Entry]:
        while not self.trouble.stopped and time.monotonic() < self._last_start and not self._batch.lost():
            call = self._batches.next_call(self._may_be_called)
            if not call or call[0].queue not in self.trouble.unwell:
                return call
            self._all(call, self.trouble.unwell[call[0].queue])
        return []

    def _may_be_called(self, queue: str) -> bool:
        return queue in self.trouble.unwell or self._calls[queue] < self._client.pace(queue).calls

    def _start(self, call: list[Entry]) -> Future[Mapping[str, Any]]:
        # Ids only have to differ within the call; anything of the message's own may have characters that AWS refuses.
        self._calls[call[0].queue] += 1
        entries = [{"Id": str(number), **entry.fields} for number, entry in enumerate(call)]
        return self._sender.start(self._queues[call[0].queue].url, entries)

    def _answered(self, call: list[Entry], future: Future[Mapping[str, Any]]) -> None:
        self._calls[call[0].queue] -= 1
        try:
            answer = future.result()
        except (Refused, NotSent) as error:
            if isinstance(error, Refused) and error.cause is Cause.CONTENT:
                self._content_refused(call, error)
            else:
                self._all(call, self._note(error, call[0].queue))
        except Exception as error:  # noqa: BLE001 - whatever else failed, the request may have left, and others arrived
            self._unanswered(call, error)
        else:
            self._reconcile(call, answer)

    def _reconcile(self, call: list[Entry], answer: Mapping[str, Any]) -> None:
        queue = call[0].queue
        taken, failed = told(answer)
        asked = {str(number) for number in range(len(call))}
        if strange := (taken | failed.keys()) - asked:
            log.warning("queue %s: the answer speaks of %d entries that nobody sent", queue, len(strange))
        if not asked & (taken | failed.keys()):
            self._unanswered(call, Unanswered("the answer speaks of no message"))
            return
        for number, entry in enumerate(call):
            if str(number) in failed:
                outcome = self._of_failed(entry, failed[str(number)])
            elif str(number) in taken:
                outcome = DELIVERED
            else:
                outcome = NOT_SPOKEN_OF
            self._outcomes[entry.position] = outcome
        if asked & taken:
            self.trouble.takes.add(queue)
        if asked <= taken:
            self._client.pace(queue).took()
        self._ended(call)

    def _of_failed(self, entry: Entry, failure: Failed) -> Outcome:
        outcome = outcome_of(failure, entry.queue, entry.size, self._limit(entry.queue))
        if not isinstance(outcome, Hold):
            return outcome
        if failed_inside(failure):
            self.trouble.failed_inside[entry.position] = (entry.queue, outcome)
        else:
            # As if the whole call had been refused: nothing else goes to this queue now.
            self.trouble.unwell[entry.queue] = outcome
            self._client.pace(entry.queue).throttled()
        return outcome

    def _content_refused(self, call: list[Entry], error: Refused) -> None:
        if len(call) > 1:
            self._batches.again_alone(call)
            return
        # What was known of the queue may be old: its limit may have been lowered.
        self._client.forget(call[0].queue)
        self._all(call, refused_alone(error, call[0].size, self._limit(call[0].queue)))

    def _unanswered(self, call: list[Entry], error: Exception) -> None:
        self._all(call, self.trouble.unanswered(error))

    def _note(self, error: SqsError, queue: str) -> Outcome:
        if not isinstance(error, Refused):
            return self.trouble.not_sent(error)
        if error.cause is Cause.MISSING:
            self._client.forget(queue)
        if error.cause in (Cause.THROTTLED, Cause.QUEUE_THROTTLED):
            self._client.pace(queue).throttled()
        return self.trouble.refused(error, queue)

    def _all(self, call: list[Entry], outcome: Outcome) -> None:
        for entry in call:
            self._outcomes[entry.position] = outcome
        self._ended(call)

    def _ended(self, call: list[Entry]) -> None:
        stuck: list[str | int] = []
        if self._config.ordered:
            stuck = [entry.lane for entry in call if self._outcomes[entry.position] is not DELIVERED]
        for entry in self._batches.ended(call, stuck):
            self._outcomes[entry.position] = WAITS
