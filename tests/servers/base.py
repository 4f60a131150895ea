"""How the tests start a real server, wait for it and stop it.

How to *get* one (apt, Maven, another Debian suite) is in `packages.py`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOCALHOST = "127.0.0.1"


class ServerUnavailable(Exception):
    """A server that the tests need cannot be had here. Fails the run; never skips a test.

    `package` is what a person would install to get it.
    """

    def __init__(self, server: str, package: str, reason: str) -> None:
        super().__init__(f"{server} cannot be had here: {reason}. It comes with: {package}")
        self.server = server
        self.package = package
        self.reason = reason


def cache_dir() -> Path:
    """Where downloads are kept between runs, outside the repository."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(base) / "outbox-relay"
    path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold a lock that every test run of this user shares, so that parallel runs download once."""
    with (cache_dir() / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def as_user(user: str | None) -> dict[str, Any]:
    """What `subprocess` needs to run a program as this user, in no other group than its own."""
    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []} if user else {}


_GIVEN_PORTS: set[int] = set()


def free_port() -> int:
    """A TCP port that nobody listens on now, and that was not given to anybody else here."""
    while True:
        with socket.socket() as probe:
            probe.bind((LOCALHOST, 0))
            port: int = probe.getsockname()[1]
        if port not in _GIVEN_PORTS:
            _GIVEN_PORTS.add(port)
            return port


def port_open(port: int, host: str = LOCALHOST) -> bool:
    """Whether somebody accepts connections there."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False


def wait_until(
    true: Callable[[], object],
    *,
    timeout: float = 10.0,
    interval: float = 0.02,
    what: str = "the condition",
) -> None:
    """Poll until `true()` returns something true.

    Args:
        timeout: seconds until it gives up.
        interval: seconds between two looks.
        what: named in the error.

    Raises:
        TimeoutError: it did not come true in time; says what `true` raised last, if it did.
    """
    deadline = time.monotonic() + timeout
    last: Exception | None = None
    while True:
        try:
            if true():
                return
            last = None
        except Exception as error:  # noqa: BLE001 - every client library has its own way to say "not yet"
            last = error
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{what} did not come true within {timeout:g} s") from last
        time.sleep(interval)


@dataclass(frozen=True)
class Server:
    """A running process, the leader of its own process group."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def tail(self, lines: int = 40) -> str:
        """The end of what it wrote to standard output and standard error."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def freeze(self) -> None:
        """Stop its whole group in mid-air (SIGSTOP)."""
        os.killpg(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.killpg(self.pid, signal.SIGCONT)

    def running(self) -> bool:
        """Whether it still runs. Does not reap it, so that its id stays its own."""
        if self.process.returncode is not None:
            return False
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def kill(self) -> None:
        """SIGKILL the whole group, now."""
        if self.process.returncode is None:
            os.killpg(self.pid, signal.SIGKILL)
            self.process.wait()

    def stop(self, stop_signal: int = signal.SIGTERM, timeout: float = 15.0) -> None:
        """Ask it to stop; after `timeout` seconds, SIGKILL. Children that it leaves behind go too."""
        if self.running():
            self.thaw()
            os.kill(self.pid, stop_signal)
            with contextlib.suppress(TimeoutError):
                wait_until(lambda: not self.running(), timeout=timeout)
        self.kill()


@contextmanager
def run_server(
    argv: Sequence[str | os.PathLike[str]],
    *,
    ready: Callable[[], object],
    name: str | None = None,
    timeout: float = 30.0,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] = "/",
    user: str | None = None,
    stop_signal: int = signal.SIGTERM,
) -> Iterator[Server]:
    """Run a server for the length of a `with` block.

    Args:
        ready: called again and again until it returns something true; what it raises means "not yet".
        name: for error texts and the log's name; default: the program's name.
        timeout: seconds until it must be ready.
        env: variables on top of this process's own.
        user: run as this user (only root may).
        stop_signal: what asks it to stop.

    Raises:
        RuntimeError: it ended, or was not ready in time; with the end of its log.
    """
    name = name or Path(argv[0]).name
    folder = Path(tempfile.mkdtemp(prefix=f"relay-test-{name}-"))
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [os.fspath(part) for part in argv],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
            cwd=cwd,
            start_new_session=True,
            **as_user(user),
        )
    server = Server(name, process, log)

    def answers() -> object:
        return not server.running() or ready()

    try:
        try:
            wait_until(answers, timeout=timeout, interval=0.03, what=f"{name} being ready")
        except TimeoutError as error:
            raise RuntimeError(f"{error}; its log ends:\n{server.tail()}") from error.__cause__
        if not server.running():
            raise RuntimeError(f"{name} ended with {process.wait()}; its log ends:\n{server.tail()}")
        yield server
    finally:
        server.stop(stop_signal)
        shutil.rmtree(folder, ignore_errors=True)
