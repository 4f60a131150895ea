"""The child's side of `sinks.local.process`: `python -m sinks.local.child FD`."""

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

from sinks.local.handlers import NotImportable, call, load


def main(connection: Connection) -> None:
    """Import what the parent names, then run what it sends, until it sends None."""
    # A signal for the whole group is the relay's to answer: what runs may finish. Not SIG_IGN: programs that a handler
    # starts would inherit it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave_it_to_the_relay)
    inbox: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_listen, args=(connection, inbox), daemon=True).start()
    try:
        handlers = load(inbox.get())
    except NotImportable as error:
        connection.send(str(error))
        return
    connection.send(None)
    with asyncio.Runner() as runner:
        while (work := inbox.get()) is not None:
            name, message = work
            connection.send(call(handlers[name], message, runner.run))


def _leave_it_to_the_relay(number: int, frame: FrameType | None) -> None:
    pass


def _listen(connection: Connection, inbox: SimpleQueue[Any]) -> None:
    try:
        while (received := connection.recv()) is not None:
            inbox.put(received)
    except (EOFError, OSError):
        # The relay is gone, and somebody else will run what runs here.
        os._exit(1)
    inbox.put(None)


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])))
