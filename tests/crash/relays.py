"""The relays of the crash test: killed, frozen, started again, most often while they hold messages."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

LEASE_S = 3
AIMED = 0.8
"""Part of the kills and freezes that wait until a relay holds messages; the others come whenever they come."""
PATIENCE_S = 5.0
LONGEST_PAUSE_S = 0.03
"""Between two looks whether a relay holds messages: at random, so that every step of a send is met."""


@dataclass
class Launch:
    """How one of the relays is started, each time."""

    file: Path
    """Its relay.toml. What it says goes into a file of the same name that ends with ".log"."""
    env: Mapping[str, str] = field(default_factory=dict)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "relay", "--config", str(self.file), *arguments]

    @property
    def log(self) -> Path:
        return self.file.with_suffix(".log")


class Relays:
    """Always as many as there are launches, some frozen for longer than their lease.

    Args:
        url: of the database.
        launches: the configuration of the first is applied.
    """

    def __init__(self, url: str, launches: Sequence[Launch], chance: random.Random) -> None:
        self.killed_holding = 0
        """Kills that left a claim behind."""
        self.frozen_holding = 0
        self.ended: list[tuple[Path, int]] = []
        """Log and exit code of those that ended though nobody asked them to."""
        self.left: list[tuple[Path, subprocess.Popen[bytes]]] = []
        """Log and process of those that were asked to end."""
        self._url = url
        self.launches = list(launches)
        self._chance = chance
        self._conn: psycopg.Connection | None = None
        self._running: list[subprocess.Popen[bytes]] = []
        self._frozen: dict[int, threading.Timer] = {}

    def __enter__(self) -> Self:
        first = self.launches[0]
        subprocess.run(first.command("apply"), env={**os.environ, **first.env}, check=True, stdout=subprocess.DEVNULL)
        self._running = [self._start(launch) for launch in self.launches]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.thaw()
        for relay in [*self._running, *(relay for _, relay in self.left)]:
            relay.kill()
            relay.wait()
        if self._conn:
            self._conn.close()
        if kind is not None:
            sys.stderr.write(self.log()[-4000:])

    def log(self) -> str:
        """What all of them said."""
        files = {launch.log: None for launch in self.launches}
        return "".join(file.read_text(errors="replace") for file in files)

    def kill(self, index: int | None = None) -> int:
        """SIGKILL one, or that one, and start another in its place; which one."""
        relay = self._stopped() if index is None else self._running[index]
        self.killed_holding += relay.pid in self._holders()
        relay.kill()
        relay.wait()
        return self._replace(relay)

    def terminate(self) -> int:
        """SIGTERM one, and start another in its place at once; which one."""
        relay = self._stopped()
        relay.send_signal(signal.SIGTERM)
        relay.send_signal(signal.SIGCONT)
        index = self._replace(relay)
        self.left.append((self.launches[index].log, relay))
        return index

    def leave(self) -> None:
        """SIGTERM the last one; nothing takes its place."""
        relay = self._running.pop()
        relay.send_signal(signal.SIGTERM)
        self.left.append((self.launches[len(self._running)].log, relay))

    def freeze(self, least: float = LEASE_S + 0.5, most: float = LEASE_S + 8.0) -> None:
        """SIGSTOP one for longer than its lease; by then another one has its messages."""
        if all(map(self._is_frozen, self._running)):
            return
        relay = self._stopped()
        self.frozen_holding += relay.pid in self._holders()
        timer = threading.Timer(self._chance.uniform(least, most), _wake, [relay])
        timer.start()
        self._frozen[relay.pid] = timer

    def thaw(self) -> None:
        """Wake all that are frozen."""
        for timer in self._frozen.values():
            timer.cancel()
        for relay in self._running:
            relay.send_signal(signal.SIGCONT)

    def keep_alive(self) -> bool:
        """Start again what ended by itself; always false."""
        for index, relay in enumerate(self._running):
            if relay.poll() is not None:
                self.ended.append((self.launches[index].log, relay.returncode))
                self._running[index] = self._start(self.launches[index])
        return False

    def drained(self) -> bool:
        """Whether nothing is left to deliver. Dead messages would be: nothing may die here."""
        row = self._connection().execute(
            "select exists (select from relay.outbox) or exists (select from relay.claims)"
            " or exists (select from relay.dead)"
        ).fetchone()  # fmt: skip
        return row is not None and not row[0]

    def holds(self, index: int) -> bool:
        """Wait a moment until this one holds messages; whether it does."""
        deadline = time.monotonic() + PATIENCE_S
        while self._running[index].pid not in self._holders():
            if time.monotonic() > deadline:
                return False
            time.sleep(self._chance.uniform(0, LONGEST_PAUSE_S))
        return True

    def _stopped(self) -> subprocess.Popen[bytes]:
        """One that is stopped (SIGSTOP), most often at a moment when it holds messages."""
        awake = [relay for relay in self._running if not self._is_frozen(relay)]
        if not awake:
            return self._chance.choice(self._running)
        patience = PATIENCE_S if self._chance.random() < AIMED else 0.0
        deadline = time.monotonic() + patience
        while True:
            relay = self._chance.choice(awake)
            relay.send_signal(signal.SIGSTOP)
            if relay.pid in self._holders() or time.monotonic() >= deadline:
                return relay
            relay.send_signal(signal.SIGCONT)
            time.sleep(self._chance.uniform(0, LONGEST_PAUSE_S))

    def _is_frozen(self, relay: subprocess.Popen[bytes]) -> bool:
        return relay.pid in self._frozen and self._frozen[relay.pid].is_alive()

    def _holders(self) -> set[int]:
        """Processes that hold messages. A relay signs its claims HOST:PROCESS:…"""
        try:
            rows = self._connection().execute("select distinct split_part(worker, ':', 2)::int from relay.claims")
            return {process for (process,) in rows}
        except psycopg.OperationalError:  # the server is down, or ended our session
            self._conn = None
            return set()

    def _connection(self) -> psycopg.Connection:
        if self._conn is None or self._conn.closed:
            self._conn = psycopg.connect(self._url, autocommit=True, connect_timeout=5)
        return self._conn

    def _replace(self, relay: subprocess.Popen[bytes]) -> int:
        index = self._running.index(relay)
        with contextlib.suppress(KeyError):
            self._frozen.pop(relay.pid).cancel()
        self._running[index] = self._start(self.launches[index])
        return index

    def _start(self, launch: Launch) -> subprocess.Popen[bytes]:
        with launch.log.open("ab") as log:
            return subprocess.Popen(
                launch.command("run"), env={**os.environ, **launch.env}, cwd=launch.file.parent, stderr=log
            )


def _wake(relay: subprocess.Popen[bytes]) -> None:
    relay.send_signal(signal.SIGCONT)
