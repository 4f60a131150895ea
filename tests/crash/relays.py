"""The relays of the crash test: killed, frozen, started again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

RELAYS = 3
LEASE_S = 3


class Relays:
    """Always three of them, some frozen for longer than their lease."""

    def __init__(self, url: str, folder: Path) -> None:
        self._folder = folder
        self._env = {**os.environ, "RELAY_DATABASE_URL": url}
        self._conn = psycopg.connect(url, autocommit=True)
        self._running: list[subprocess.Popen[bytes]] = []
        self._frozen: dict[int, threading.Timer] = {}

    def __enter__(self) -> Self:
        subprocess.run([*self._command("apply")], env=self._env, check=True, stdout=subprocess.DEVNULL)
        self._running = [self._start() for _ in range(RELAYS)]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.thaw()
        for relay in self._running:
            relay.kill()
            relay.wait()
        self._conn.close()
        if kind is not None:
            sys.stderr.write((self._folder / "relay.log").read_text(errors="replace")[-4000:])

    def kill(self, chance: random.Random) -> None:
        """SIGKILL one, and start another in its place."""
        index = chance.randrange(RELAYS)
        self._running[index].kill()
        self._running[index].wait()
        self._running[index] = self._start()

    def freeze(self, chance: random.Random) -> None:
        """SIGSTOP one for longer than its lease; by then another one has its messages."""
        relay = chance.choice(self._running)
        if relay.pid in self._frozen and self._frozen[relay.pid].is_alive():
            return
        relay.send_signal(signal.SIGSTOP)
        timer = threading.Timer(LEASE_S + chance.uniform(0.5, 3.0), relay.send_signal, [signal.SIGCONT])
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
                self._running[index] = self._start()
        return False

    def drained(self) -> bool:
        """Whether nothing is left to deliver. Dead messages would be: nothing may die here."""
        row = self._conn.execute(
            "select exists (select from relay.outbox) or exists (select from relay.claims)"
            " or exists (select from relay.dead)"
        ).fetchone()
        return row is not None and not row[0]

    def _start(self) -> subprocess.Popen[bytes]:
        with (self._folder / "relay.log").open("ab") as log:
            return subprocess.Popen(self._command("run"), env=self._env, stderr=log)

    def _command(self, name: str) -> list[str]:
        return [sys.executable, "-m", "relay", "--config", str(self._folder / "relay.toml"), name]
