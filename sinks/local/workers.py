"""Workers: threads that run a message at a time, and can be told that its time is over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Protocol, TypeVar

from sinks.base import Message, Outcome

CLOSE_S = 3.0

T = TypeVar("T")


class Executor(Protocol):
    """Runs handlers for one worker."""

    def prepare(self) -> None:
        """Be able to run. May raise `SinkUnavailable`."""
        ...

    def run(self, name: str, message: Message) -> Outcome:
        """Run this handler to its end. Raises nothing, unless it is interrupted."""
        ...

    def interrupt(self) -> None:
        """End what runs; called from another thread."""
        ...

    def close(self) -> None: ...


class TimeIsUp(BaseException):
    """Raised inside a handler that has run for too long. A `finally` block runs; `except Exception` does not see it."""


class Worker:
    """One thread, which dies with the process whatever it is doing: a pool of the standard library would wait for it.

    An interrupted worker must not be used again: what interrupts it may come late.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._inbox: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="handler", daemon=True)
        self._thread.start()
        self.began: float | None = None
        """When its message was handed to the handler, by the monotonic clock."""

    def prepare(self) -> Future[None]:
        """Be able to run. The future may raise `SinkUnavailable`."""
        return self._submit(self._executor.prepare)

    def start(self, name: str, message: Message) -> Future[Outcome]:
        """Run a handler. The future may raise `SinkUnavailable`: then it was not run."""
        self.began = None

        def run() -> Outcome:
            self._executor.prepare()
            self.began = time.monotonic()
            return self._executor.run(name, message)

        return self._submit(run)

    def interrupt(self) -> None:
        """End what runs, as far as that can be done."""
        self._executor.interrupt()

    def close(self) -> None:
        """End, once nothing runs any more."""
        self._inbox.put(None)

    def join(self) -> None:
        """Wait a little for the end."""
        self._thread.join(CLOSE_S)

    def _submit(self, work: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits
                future.set_exception(error)
            else:
                future.set_result(result)

        self._inbox.put(run)
        return future

    def _run(self) -> None:
        try:
            while (work := self._inbox.get()) is not None:
                work()
        except TimeIsUp:
            pass  # It came when the handler had ended.
        finally:
            self._executor.close()
