"""Running handlers in a child process: what kills it takes nothing else along, and a time-out can kill it."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import NamedTuple

from sinks.base import Message, Outcome, Retry, SinkUnavailable

START_S = 60.0
"""An application's imports may take their time."""
END_S = 2.0


class _Child(NamedTuple):
    process: subprocess.Popen[bytes]
    connection: Connection


class InProcess:
    """Runs one handler at a time in a child of its own, which lives until it dies or is closed.

    The two speak pickles over a socket: handler names first, then `(name, message)` for an outcome each, then None.
    """

    def __init__(self, handlers: Sequence[str]) -> None:
        self._handlers = handlers
        self._child: _Child | None = None

    def prepare(self) -> None:
        """Have a child that has imported the handlers.

        Raises:
            SinkUnavailable: it could not import them.
        """
        self._living()

    def run(self, name: str, message: Message) -> Outcome:
        child = self._living()
        try:
            child.connection.send((name, message))
            outcome: Outcome = child.connection.recv()
        except (EOFError, OSError):
            return Retry(f"its process {self._discard(child)}")
        return outcome

    def interrupt(self) -> None:
        """End what runs, from another thread."""
        if self._child is not None:
            self._child.process.kill()

    def close(self) -> None:
        if self._child is not None:
            with suppress(OSError):  # It may be gone already.
                self._child.connection.send(None)
            self._discard(self._child)

    def _living(self) -> _Child:
        if self._child is not None and self._child.process.poll() is not None:
            self._discard(self._child)
        if self._child is None:
            self._child = self._start()
        return self._child

    def _start(self) -> _Child:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "sinks.local.child", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        child = _Child(process, Connection(ours.detach()))
        try:
            child.connection.send(list(self._handlers))
            trouble = child.connection.recv() if child.connection.poll(START_S) else f"no answer within {START_S:g} s"
        except (EOFError, OSError):
            trouble = ""
        if trouble is None:
            return child
        ended = self._discard(child)
        raise SinkUnavailable(trouble or f"the process for handlers {ended}", unknown=False)

    def _discard(self, child: _Child) -> str:
        """Be rid of it; how it ended."""
        self._child = None
        # It ends by itself when it sees that.
        child.connection.close()
        try:
            code = child.process.wait(END_S)
        except subprocess.TimeoutExpired:
            child.process.kill()
            code = child.process.wait()
        return f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
