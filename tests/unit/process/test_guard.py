"""A thread of the process goes on after what nobody expected. The same kind: any thread that only one error may end."""

from __future__ import annotations

import errno
import os
import threading

from relay.process.guard import run_guarded
from relay.process.stopping import Stopping


def test_it_starts_again() -> None:
    rounds: list[int] = []

    def run() -> None:
        rounds.append(len(rounds))
        if len(rounds) < 3:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    run_guarded("heartbeat", run, Stopping())
    assert rounds == [0, 1, 2]


def test_it_ends_with_the_process() -> None:
    stopping, failed = Stopping(), threading.Event()

    def run() -> None:
        failed.set()
        raise RuntimeError("whatever it is")

    thread = threading.Thread(target=run_guarded, args=("maintenance", run, stopping))
    thread.start()
    assert failed.wait(10)
    stopping.stop_at_once()
    thread.join(10)
    assert not thread.is_alive()
