"""The applications: transactions that commit, commit late, are prepared, or roll back.

A key belongs to one writer, which has one transaction at a time: so a key's ids commit in their order.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import psycopg

from tests.model.plan import Plan

WRITERS = 4
KEYS = 12
MESSAGES_PER_S = 70
FATES = {"commit": 60, "roll back": 12, "late": 10, "late roll back": 4, "savepoint": 6, "prepare": 8}
"""How often a transaction ends how."""
LATE_S = (0.3, 4.0)
WHATS: Sequence[list[Any]] = (["fail", 1], ["fail", 3], ["error", 1], ["exit", 1], ["reject"])
INSERT = "insert into relay.outbox (kind, key, payload, run_at) values (%s, %s, %s, now() + make_interval(secs => %s))"


class Writers:
    """Threads that write until told to stop; a server that is down only makes them wait."""

    def __init__(self, url: str, plan: Plan) -> None:
        self.written = 0
        """Messages, those that were rolled back too."""
        self._url = url
        self._plan = plan
        self._numbers = itertools.count(1)
        self._stop = threading.Event()
        self._failures: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(WRITERS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """End all transactions, prepared ones too."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def _run(self, writer: int) -> None:
        chance = random.Random(self._plan.writers + writer)
        fates = {fate: weight for fate, weight in FATES.items() if self._plan.prepares or fate != "prepare"}
        try:
            while not self._stop.is_set():
                # A server that is down, or a transaction that the server refuses: as an application, begin anew.
                with contextlib.suppress(psycopg.OperationalError, psycopg.InterfaceError):
                    with psycopg.connect(self._url, autocommit=True, connect_timeout=5) as conn:
                        _end_prepared(conn, f"{writer}-")
                        while not self._stop.is_set():
                            [fate] = chance.choices(list(fates), list(fates.values()))
                            self._transaction(conn, writer, fate, chance)
                self._stop.wait(0.1)
            self._end(writer)
        except BaseException as error:  # noqa: BLE001 - a thread that ends quietly would look like success
            self._failures.append(error)

    def _end(self, writer: int) -> None:
        with psycopg.connect(self._url, autocommit=True) as conn:
            _end_prepared(conn, f"{writer}-")

    def _transaction(self, conn: psycopg.Connection, writer: int, fate: str, chance: random.Random) -> None:
        count = chance.randint(1, 8)
        name = f"{writer}-{'commit' if chance.random() < 0.7 else 'rollback'}-{chance.randrange(10**9)}"
        late = chance.uniform(*LATE_S)
        conn.execute("begin")
        for number in range(count):
            if fate == "savepoint" and number == count // 2:
                conn.execute("savepoint half")
            self._insert(conn, writer, chance)
        if "late" in fate:
            self._stop.wait(late)
        if fate == "prepare":
            conn.execute(f"prepare transaction '{name}'".encode())
            self._stop.wait(late)
            _end_prepared(conn, name)
        elif "roll back" in fate:
            conn.execute("rollback")
        else:
            if fate == "savepoint":
                conn.execute("rollback to half")
            conn.execute("commit")
        self._stop.wait(count * WRITERS / MESSAGES_PER_S * chance.uniform(0.5, 1.5))

    def _insert(self, conn: psycopg.Connection, writer: int, chance: random.Random) -> None:
        number = next(self._numbers)
        self.written += 1
        key = None if chance.random() < 0.1 else f"{writer}-{chance.randrange(KEYS)}"
        kind = "all" if chance.random() < 0.3 else f"to.{chance.choice(self._plan.sinks)}"
        payload = [number, key or "", *(chance.choice(WHATS) if chance.random() < 0.05 else [])]
        delay = chance.uniform(0, 3) if chance.random() < 0.05 else None
        conn.execute(INSERT, [kind, key, json.dumps(payload), delay])


def _end_prepared(conn: psycopg.Connection, begins: str) -> None:
    """Those whose name begins so, as the name says."""
    rows = conn.execute("select gid from pg_prepared_xacts where database = current_database()").fetchall()
    for (name,) in rows:
        if name.startswith(begins):
            conn.execute(f"{name.split('-')[1]} prepared '{name}'".encode())
