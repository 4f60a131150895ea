"""Running handlers in threads of this process, and async ones on an event loop that they all share."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from typing import Any

from sinks.base import Message, Outcome
from sinks.local.handlers import Handler, OnError, call
from sinks.local.loop import SharedLoop
from sinks.local.workers import TimeIsUp


class InThread:
    """Runs one handler at a time, in the thread that calls `run`."""

    def __init__(self, handlers: Mapping[str, Handler], on_error: OnError) -> None:
        self._handlers = handlers
        self._on_error = on_error
        self._thread: int | None = None
        self._async: Future[BaseException | None] | None = None

    def prepare(self) -> None:
        """Nothing is to be done before the first message."""

    def run(self, name: str, message: Message) -> Outcome:
        self._thread = threading.get_ident()
        return call(self._handlers[name], message, self._wait, self._on_error)

    def interrupt(self) -> None:
        """End what runs, from another thread: an async handler is cancelled, another one gets `TimeIsUp` as soon as
        it is back in Python code."""
        if self._async is not None:
            self._async.cancel()
        elif self._thread is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), ctypes.py_object(TimeIsUp))

    def close(self) -> None:
        pass

    def _wait(self, settled: Coroutine[Any, Any, BaseException | None]) -> BaseException | None:
        self._async = _loop.run(settled)
        try:
            return self._async.result()
        finally:
            self._async = None


_loop = SharedLoop()
