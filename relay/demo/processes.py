"""Processes that the demo starts, and ends whatever happens."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from relay.errors import RelayError

LOCALHOST = "127.0.0.1"
STOP_S = 10.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def child(
    argv: Sequence[str],
    log: Path,
    environment: Mapping[str, str] | None = None,
    *,
    ended_by: signal.Signals = signal.SIGKILL,
    **identity: Any,
) -> Iterator[subprocess.Popen[bytes]]:
    """A process for the length of a `with` block.

    Args:
        log: gets what it says.
        ended_by: most may be killed, as the demo keeps nothing.
        identity: `user`, `group`, `extra_groups`: who runs it, where that is not us.
    """
    with log.open("wb") as output:
        # A session of its own: Ctrl-C is for us, and we end the others in order.
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
            cwd="/",
            **identity,
        )
    try:
        yield process
    finally:
        end(process, ended_by)


def end(process: subprocess.Popen[bytes], ended_by: signal.Signals = signal.SIGTERM) -> int:
    """Ask it to stop, and make it; its exit code."""
    process.send_signal(ended_by)
    try:
        return process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def wait_for(true: Callable[[], object], what: str, *, timeout: float = 30.0, interval: float = 0.02) -> None:
    """Poll; what `true` raises as `OSError` means "not yet".

    Raises:
        RelayError: it took longer than `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            if true():
                return
        except OSError:
            pass
        if time.monotonic() > deadline:
            raise RelayError(f"{what} took longer than {timeout:g} s")
        time.sleep(interval)


def free_port() -> int:
    """A TCP port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((LOCALHOST, 0))
        port: int = probe.getsockname()[1]
        return port


def listens(port: int) -> bool:
    """Whether somebody accepts connections there; raises `OSError` where nobody does."""
    socket.create_connection((LOCALHOST, port), timeout=1).close()
    return True


def interrupt_once() -> None:
    """Let the first signal end the demo through its `finally` blocks, and let no second one disturb them."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    for each in _SIGNALS:
        signal.signal(each, interrupt)
