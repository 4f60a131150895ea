"""Python functions of the application, called in this process or in children of it: the table queue by itself.

| what happens | outcome |
| --- | --- |
| the function returns | delivered |
| it raises `Retry` or any other exception, or runs for longer than `timeout` | tried again, the attempt counted |
| its child process dies | the same, for its message alone |
| it raises `Reject` | dead |
| it raises `Hold`, or no handler matches the kind | held, the attempt not counted |
| a handler cannot be imported | the sink is unavailable |

Nothing is fenced: after a crash a function may be called again for a message that it has handled, under the same
`message_id`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Any, Final

from sinks import base
from sinks.local.handlers import Handler, Kinds, NotImportable, OnError, described, load
from sinks.local.lanes import Lanes
from sinks.local.options import LocalOptions
from sinks.local.process import InProcess
from sinks.local.thread import InThread
from sinks.local.workers import Worker

__all__ = ["LocalSink"]

log = logging.getLogger("sinks.local")

STRAY_S: Final = 2.0
"""How long a handler may take to end once its time is up."""
STARTING_S: Final = 0.1

MOST_MISSING: Final = 100
"""Kinds without handler that are named in the log: writers choose kinds, so there is no end of them."""

NOT_STARTED: Final = base.Hold("not started: the relay is stopping")


@dataclass
class _Job:
    """A message that is being handled."""

    position: int
    message: base.Message
    worker: Worker
    future: Future[base.Outcome]
    interrupted_at: float | None = None

    def next_step_at(self, timeout: float) -> float:
        """When there is something to do about it, unless it ends before."""
        if self.interrupted_at is not None:
            return self.interrupted_at + STRAY_S
        began = self.worker.began
        return time.monotonic() + STARTING_S if began is None else began + timeout


class LocalSink(base.Sink):
    """Calls a function for each message."""

    Options = LocalOptions

    def __init__(self, config: base.SinkConfig) -> None:
        """
        Raises:
            ValueError: there are options for a client library.
        """
        super().__init__(config)
        if config.client:
            raise ValueError("nothing: a local sink has no client library")
        options: LocalOptions = config.options
        self._options = options
        self._kinds = Kinds(options.handlers)
        self._handlers: Mapping[str, Handler] = {}
        self._idle: list[Worker] = []
        self._missing: set[str] = set()

    @classmethod
    def defaults(cls, options: Any) -> Mapping[str, Any]:
        # What is claimed and not running would only wait, while another worker could run it.
        return {"batch_messages": options.concurrency}

    def fingerprint(self) -> str:
        return "local " + ",".join(f"{kind}={name}" for kind, name in sorted(self._options.handlers.items()))

    def open(self) -> None:
        if self._idle:
            return
        if self._options.executor == "thread":
            try:
                self._handlers = load(self._options.handlers.values())
            except NotImportable as error:
                raise base.SinkUnavailable(str(error), unknown=False) from error
        worker = self._new_worker()
        try:
            worker.prepare().result()
        except base.SinkUnavailable:
            worker.close()
            raise
        self._idle.append(worker)

    def send(self, batch: base.Batch) -> Sequence[base.Outcome]:
        """Returns, or raises, only when none of its jobs runs any more: whoever is asked next may run them again."""
        lanes = Lanes(batch.messages, ordered=self.config.ordered)
        jobs: list[_Job] = []
        try:
            while True:
                while len(jobs) < self._options.concurrency and not (batch.lost() or batch.stopping()):
                    position = lanes.take()
                    if position is None:
                        break
                    jobs += self._start(position, batch.messages[position], lanes)
                if not jobs:
                    return lanes.outcomes(NOT_STARTED)
                until = min(job.next_step_at(self._options.timeout) for job in jobs)
                wait([job.future for job in jobs], max(until - time.monotonic(), 0.0), FIRST_COMPLETED)
                jobs = [job for job in jobs if not self._ended(job, lanes)]
        finally:
            self._end(jobs)

    def close(self) -> None:
        for worker in self._idle:
            worker.close()
        for worker in self._idle:
            worker.join()
        self._idle.clear()

    def _end(self, jobs: Sequence[_Job]) -> None:
        for job in jobs:
            job.worker.interrupt()
            job.worker.close()
        wait([job.future for job in jobs], STRAY_S)

    def _start(self, position: int, message: base.Message, lanes: Lanes) -> list[_Job]:
        name = self._kinds.handler(message.kind)
        if name is None:
            self._say_missing(message.kind)
            lanes.settle(position, base.Hold("no handler for this kind", message.kind))
            return []
        try:
            worker = self._idle.pop() if self._idle else self._new_worker()
        except RuntimeError as error:  # "can't start new thread"
            lanes.settle(position, base.Hold(f"not started: {error}"))
            return []
        return [_Job(position, message, worker, worker.start(name, message))]

    def _say_missing(self, kind: str) -> None:
        if kind not in self._missing and len(self._missing) < MOST_MISSING:
            self._missing.add(kind)
            log.warning("no handler for kind %s", kind)

    def _ended(self, job: _Job, lanes: Lanes) -> bool:
        """Whether it has, or is given up. Interrupts it where its time is up."""
        now = time.monotonic()
        if job.future.done():
            lanes.settle(job.position, self._outcome(job))
        elif now < job.next_step_at(self._options.timeout):
            return False
        elif job.interrupted_at is None:
            job.interrupted_at = now
            job.worker.interrupt()
            return False
        else:
            log.warning("handler for kind %s does not end: its thread is left behind", job.message.kind)
            lanes.settle(job.position, self._timed_out())
        if job.interrupted_at is None:
            self._idle.append(job.worker)
        else:
            job.worker.close()
        return True

    def _outcome(self, job: _Job) -> base.Outcome:
        error = job.future.exception()
        if isinstance(error, base.SinkUnavailable):
            return base.Hold(error.reason)
        if error is None and isinstance(job.future.result(), base.Delivered):
            return base.DELIVERED
        if job.interrupted_at is not None:
            return self._timed_out()
        return job.future.result() if error is None else base.Retry(described(error))

    def _timed_out(self) -> base.Outcome:
        return base.Retry(f"timed out after {self._options.timeout:g} s")

    def _new_worker(self) -> Worker:
        on_error = OnError(_say_error, wanted=log.isEnabledFor(logging.DEBUG))
        if self._options.executor == "process":
            return Worker(InProcess(list(self._options.handlers.values()), on_error))
        return Worker(InThread(self._handlers, on_error))


def _say_error(kind: str, traceback: str) -> None:
    log.debug("handler for kind %s failed\n%s", kind, traceback)
