"""The relays of the crash test: killed, frozen, started again, most often while they hold messages."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

RELAYS = 3
LEASE_S = 3
AIMED = 0.8
"""Part of the kills and freezes that wait until a relay holds messages; the others come whenever they come."""
PATIENCE_S = 5.0
LONGEST_PAUSE_S = 0.03
"""Between two looks whether a relay holds messages: at random, so that every step of a send is met."""


class Relays:
    """Always three of them, some frozen for longer than their lease.

    Args:
        url: of the database.
        relays_url: of the same, as the relays see it.
    """

    def __init__(self, url: str, relays_url: str, folder: Path, chance: random.Random) -> None:
        self.killed_holding = 0
        """Kills that left a claim behind."""
        self.frozen_holding = 0
        self._folder = folder
        self._chance = chance
        self._env = {**os.environ, "RELAY_DATABASE_URL": relays_url}
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
            sys.stderr.write(self.log()[-4000:])

    def log(self) -> str:
        """What all of them said."""
        return (self._folder / "relay.log").read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL one, and start another in its place."""
        relay = self._stopped()
        self.killed_holding += relay.pid in self._holders()
        relay.kill()
        relay.wait()
        self._running[self._running.index(relay)] = self._start()

    def freeze(self) -> None:
        """SIGSTOP one for longer than its lease; by then another one has its messages."""
        if all(map(self._is_frozen, self._running)):
            return
        relay = self._stopped()
        self.frozen_holding += relay.pid in self._holders()
        timer = threading.Timer(LEASE_S + self._chance.uniform(0.5, 8.0), relay.send_signal, [signal.SIGCONT])
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
        rows = self._conn.execute("select distinct split_part(worker, ':', 2)::int from relay.claims")
        return {process for (process,) in rows}

    def _start(self) -> subprocess.Popen[bytes]:
        with (self._folder / "relay.log").open("ab") as log:
            return subprocess.Popen(self._command("run"), env=self._env, stderr=log)

    def _command(self, name: str) -> list[str]:
        return [sys.executable, "-m", "relay", "--config", str(self._folder / "relay.toml"), name]
