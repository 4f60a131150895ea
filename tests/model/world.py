"""A seed's world while it lives: its database, relays, writers and wires, and what is still to happen."""

from __future__ import annotations

import heapq
import itertools
import json
import os
import random
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg.sql import SQL, Identifier, Literal

from tests.crash.brokers import section
from tests.crash.relays import Launch, Relays
from tests.model import audit, jobs
from tests.model.plan import Plan
from tests.model.sinks import SINKS, Destination
from tests.model.stage import Stage, Wires
from tests.model.writers import Writers
from tests.servers.base import wait_until
from tests.servers.postgres import migrate, new_database

COMMAND_S = 100.0
STARTED_WITHIN_S = 60.0
OPERATORS = 2
ROOT = Path(__file__).parents[2]
RESOLVER = Path(__file__).with_name("resolver")
Action = Callable[[], object]


@dataclass
class World:
    """Everything that steps act upon."""

    plan: Plan
    stage: Stage
    folder: Path
    url: str
    wires: Wires
    sinks: list[Destination]
    relays: Relays
    writers: Writers
    log: list[str] = field(default_factory=list)
    """What was done when."""
    answers: list[subprocess.CompletedProcess[str]] = field(default_factory=list)
    """Of the commands that an operator ran."""
    discards: set[str] = field(default_factory=set)
    """Sinks of which dead messages were discarded."""
    releases: set[str] = field(default_factory=set)
    """Sinks of which keys were released."""
    untrue: list[str] = field(default_factory=list)
    """What was seen meanwhile and should not be."""
    held: set[str] = field(default_factory=set)
    """Servers that do not get what a relay sends."""
    resharded: bool = False
    """Whether the relays' files and the database had different numbers of shards for a while."""
    pausing: Mapping[str, threading.Lock] = field(default_factory=lambda: defaultdict(threading.Lock))
    """By sink: one at a time pauses it or moves it to other shards."""
    applying: threading.Lock = field(default_factory=threading.Lock)
    _operators: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(OPERATORS))
    _work: list[Future[object]] = field(default_factory=list)
    _healing: threading.Event = field(default_factory=threading.Event)
    _later: list[tuple[float, int, Action]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _started: float = field(default_factory=time.monotonic)

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def later(self, seconds: float, action: Action) -> None:
        """Do this in so many seconds, or when the world is healed."""
        self.at(self.now + seconds, action)

    def at(self, second: float, action: Action) -> None:
        heapq.heappush(self._later, (second, next(self._numbers), action))

    def live(self, seconds: float) -> None:
        """Let everything happen that is due within so many seconds from the start; see that the relays live."""
        while self._later and self._later[0][0] < seconds:
            at, _, action = heapq.heappop(self._later)
            self._wait(at)
            action()
        self._wait(seconds)

    def rest(self) -> None:
        """Whatever was to happen later happens now."""
        self._healing.set()
        while self._later:
            _, _, action = heapq.heappop(self._later)
            action()

    def end_work(self) -> None:
        """Wait for the operators."""
        for future in self._work:
            future.result()
        self._work.clear()

    def _wait(self, until: float) -> None:
        while (left := until - self.now) > 0:
            self.relays.keep_alive()
            time.sleep(min(left, 0.2))

    def sql(self, text: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run one statement in its own transaction; nothing where the server is down."""
        try:
            with psycopg.connect(self.url, autocommit=True, connect_timeout=5) as conn:
                cursor = conn.execute(text.encode(), parameters or None)
                return cursor.fetchall() if cursor.description else []
        except psycopg.OperationalError as error:
            self.note(f"the database refused: {error}")
            return []

    def operate(self, work: Action) -> None:
        """Let an operator do this as soon as one has time."""
        self._work.append(self._operators.submit(work))

    def halt(self, seconds: float) -> None:
        """An operator waits, or goes on at once where everything is being healed."""
        self._healing.wait(seconds)

    def command(self, *arguments: str, timeout: float | None = None) -> subprocess.CompletedProcess[str]:
        """A `relay` command, to its end. It has no proxy before the database.

        Args:
            timeout: seconds after which it is killed.
        """
        launch = self.relays.launches[0]
        env = {**os.environ, **launch.env, "RELAY_DATABASE_URL": self.url}
        command = launch.command(*arguments)
        try:
            done = subprocess.run(
                command, env=env, capture_output=True, text=True, timeout=timeout or COMMAND_S, check=False
            )
        except subprocess.TimeoutExpired:
            self.note(f"relay {' '.join(arguments)}: killed")
            # One that was to be killed answers nothing; any other one hangs.
            done = subprocess.CompletedProcess(command, -9, "", "")
            if timeout is None:
                self.untrue.append(f"relay {' '.join(arguments)} did not end within {COMMAND_S:g} s")
            return done
        self.note(f"relay {' '.join(arguments)}: {done.returncode} {done.stdout[-300:]!r} {done.stderr[-600:]!r}")
        self.answers.append(done)
        return done

    def discarded(self, sink: str, died: set[int]) -> set[int]:
        """Those of these messages that an operator may have discarded."""
        return died if sink in self.discards else set()

    def released(self, sink: str) -> bool:
        """Whether an operator let keys go on without a message of theirs."""
        return sink in self.releases

    def note(self, text: str) -> None:
        self.log.append(f"{self.now:6.1f} s  {text}")


@contextmanager
def new_world(plan: Plan, stage: Stage, folder: Path, tree: Path | None) -> Iterator[World]:
    """Make it, and start relays and writers.

    Args:
        tree: the relays run this copy of the product.
    """
    with ExitStack() as stack:
        url = stack.enter_context(new_database(stage.cluster.url()))
        migrate(url)
        audit.install(url)
        _set_defaults(url, plan)
        servers = {"postgres": url, **({"redis": stage.redis.server.url} if stage.redis.up else {})}
        stage.clear()
        wires = Wires(stack, folder, len(plan.relays), servers)
        sinks = [SINKS[name](stage, wires) for name in plan.sinks]
        configure(plan, sinks, folder)
        path = os.pathsep.join(map(str, [*([tree] if tree else []), RESOLVER, ROOT]))
        env = {"PYTHONPATH": path, jobs.FOLDER: str(folder)}
        launches = [
            Launch(folder / f"relay-{number}.toml", env | wires.environment(number))
            for number in range(len(plan.relays))
        ]
        relays = stack.enter_context(Relays(url, launches, random.Random(plan.writers + 1)))
        wait_until(lambda: _relays(url) == len(launches), timeout=STARTED_WITHIN_S, what="all relays having started")
        writers = stack.enter_context(Writers(url, plan))
        yield World(plan, stage, folder, url, wires, sinks, relays, writers)


def _relays(url: str) -> int:
    with psycopg.connect(url) as conn:
        row = conn.execute("select count(*) from relay.relays").fetchone()
    return row[0] if row else 0


def _set_defaults(url: str, plan: Plan) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        database = Identifier(conn.info.dbname)
        settings = {**plan.defaults, "relay.notify": "off" if plan.prepares else "on"}
        for name, value in settings.items():
            parts = SQL(".").join(map(Identifier, name.split(".")))
            conn.execute(SQL("alter database {} set {} = {}").format(database, parts, Literal(value)))


def configure(plan: Plan, sinks: list[Destination], folder: Path) -> None:
    """Write the relays' files."""
    kinds = [("all", sink.name) for sink in sinks] + [(f"to.{sink.name}", sink.name) for sink in sinks]
    routes = "".join(f"[[routes]]\nkind = {json.dumps(kind)}\nsink = {json.dumps(name)}\n" for kind, name in kinds)
    for number, own in enumerate(plan.relays):
        sections = "".join(section(sink.name, **{**sink.keys(), **own, **sink.at_least}) for sink in sinks)
        head = '[database]\ntimeout = "5s"\n[log]\nformat = "json"\n'
        (folder / f"relay-{number}.toml").write_text(head + sections + routes, encoding="utf-8")
