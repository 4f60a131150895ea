"""Running handlers in a child process: what kills it takes nothing else along, and a time-out can kill it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Final, NamedTuple

from sinks.base import Message, Outcome, Retry, SinkUnavailable
from sinks.local import answer
from sinks.local.handlers import OnError

START_S: Final = 60.0
"""An application's imports may take their time."""
END_S: Final = 2.0
LOOK_S: Final = 0.5
"""How long a child's death may go unnoticed while a process that it forked keeps the socket open."""


class _Child(NamedTuple):
    process: subprocess.Popen[bytes]
    connection: Connection

    def answers(self, timeout: float) -> bool:
        """Whether an answer comes within `timeout` seconds. False as soon as the child is seen to be dead."""
        while not self.connection.poll(min(timeout, LOOK_S)):
            timeout -= LOOK_S
            if timeout <= 0:
                return False
            if self.process.poll() is not None:
                return self.connection.poll()  # It may have answered just before.
        return True

    def kill(self) -> None:
        """With whatever its jobs have started: the child leads a process group of its own."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)


class InProcess:
    """Runs one handler at a time in a child of its own, which lives until it dies or is closed.

    It gets pickles over a socket: handler names first, then `(name, message)` each, then None. It answers with text.
    """

    def __init__(self, handlers: Sequence[str], on_error: OnError) -> None:
        self._handlers = handlers
        self._on_error = on_error
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
            outcome, traceback = answer.load(self._answer(child))
        except (EOFError, OSError):
            return Retry(f"its process {self._discard(child)}")
        except ValueError:
            self._discard(child)
            return Retry("its process gave an answer that is none")
        if traceback is not None:
            self._on_error(message.kind, traceback)
        return outcome

    def interrupt(self) -> None:
        """End what runs, from another thread."""
        if self._child is not None:
            self._child.kill()

    def close(self) -> None:
        if self._child is not None:
            with suppress(OSError):  # It may be gone already.
                self._child.connection.send(None)
            self._discard(self._child)

    def _answer(self, child: _Child) -> bytes:
        if not child.answers(float("inf")):
            raise EOFError
        return child.connection.recv_bytes()

    def _living(self) -> _Child:
        if self._child is not None and self._child.process.poll() is not None:
            self._discard(self._child)
        if self._child is None:
            self._child = self._start()
        return self._child

    def _start(self) -> _Child:
        ours, theirs = socket.socketpair()
        with theirs:
            # -P: a folder of the application that is called as one of our packages must not be taken for it.
            argv = [sys.executable, "-P", "-m", "sinks.local.child", str(theirs.fileno())]
            try:
                process = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True
                )
            except OSError as error:
                ours.close()
                raise SinkUnavailable(f"no process for handlers: {error.strerror}", unknown=False) from error
        child = _Child(process, Connection(ours.detach()))
        trouble = ""
        with suppress(EOFError, OSError):
            child.connection.send((list(self._handlers), self._on_error.wanted))
            if child.answers(START_S):
                trouble = child.connection.recv_bytes().decode()
                if not trouble:
                    return child
            elif process.poll() is None:
                trouble = f"no answer within {START_S:g} s"
        ended = self._discard(child)
        raise SinkUnavailable(trouble or f"the process for handlers {ended}", unknown=False)

    def _discard(self, child: _Child) -> str:
        """Be rid of it, and of what its jobs have started; how it ended."""
        self._child = None
        # It ends by itself when it sees that.
        child.connection.close()
        try:
            code = child.process.wait(END_S)
        except subprocess.TimeoutExpired:
            child.kill()
            code = child.process.wait()
        child.kill()
        return f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
