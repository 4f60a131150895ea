"""Event loops that outlive what runs on them: `SystemExit` in any task ends a loop, and every job that waits on it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

log = logging.getLogger("sinks.local")


def run_again(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run work to its end on a loop of this thread, whatever another task of it raises."""
    task = loop.create_task(work)
    while not task.done():
        try:
            loop.run_until_complete(task)
        except BaseException as error:
            if task.done():
                raise
            _say(error)
    return task.result()


class SharedLoop:
    """One for the process, so that what handlers share, such as a client's connections, belongs to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: set[Future[Any]] = set()

    def run(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run work on it. The future fails where a handler closes the loop."""
        with self._lock:
            if self._loop is None or self._loop.is_closed():
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._serve, args=[self._loop], name="async handlers", daemon=True).start()
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
            self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        return future

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        while not loop.is_closed():
            try:
                loop.run_forever()
            except BaseException as error:  # noqa: BLE001 - what a handler left running must not end all others
                _say(error)
        with self._lock:
            waiting = list(self._waiting) if self._loop is loop else []
            for future in waiting:
                if not future.done():
                    future.set_exception(RuntimeError("a handler closed the event loop"))


def _say(error: BaseException) -> None:
    log.warning("a task of a handler ended the event loop with %s: it runs again", type(error).__name__)
