"""The child's side of `sinks.local.process`: `python -P -m sinks.local.child FD`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from multiprocessing.connection import Connection
from queue import SimpleQueue
from types import FrameType
from typing import Any

from sinks.local import answer
from sinks.local.handlers import NotImportable, OnError, call, load
from sinks.local.loop import run_again


def main(connection: Connection) -> None:
    """Import what the parent names, then run what it sends, until it sends None."""
    # A signal for the whole group is the relay's to answer: what runs may finish. Not SIG_IGN: programs that a handler
    # starts would inherit it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave_it_to_the_relay)
    inbox: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_listen, args=(connection, inbox), daemon=True).start()
    names, tracebacks = inbox.get()
    try:
        handlers = load(names)
    except NotImportable as error:
        _say(connection, str(error).encode("utf-8", "replace"))
        return
    _say(connection, b"")
    raised: list[str] = []
    on_error = OnError(lambda kind, text: raised.append(text), wanted=tracebacks)
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        while (work := inbox.get()) is not None:
            name, message = work
            raised.clear()
            outcome = call(handlers[name], message, lambda work: run_again(loop, work), on_error)
            _say(connection, answer.dump(outcome, raised[0] if raised else None))


def _leave_it_to_the_relay(number: int, frame: FrameType | None) -> None:
    pass


def _say(connection: Connection, words: bytes) -> None:
    try:
        connection.send_bytes(words)
    except OSError:
        _end()


def _listen(connection: Connection, inbox: SimpleQueue[Any]) -> None:
    try:
        while (received := connection.recv()) is not None:
            inbox.put(received)
    except (EOFError, OSError):
        _end()
    inbox.put(None)


def _end() -> None:
    """The relay is gone, and somebody else will run what runs here: what it started ends with it."""
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])))
