"""The applications of the crash test: transactions that commit or roll back."""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from types import TracebackType
from typing import Self

import psycopg

WRITERS = 3
KEYS = 30
ROLLED_BACK = 0.1


class Writers:
    """Threads that write until told to stop.

    Args:
        rate: messages a second, of all together.
        seed: of their choices.
    """

    def __init__(self, url: str, rate: int, seed: float) -> None:
        self.committed: set[int] = set()
        self._url = url
        self._pause = WRITERS / rate
        self._numbers = itertools.count(1)
        self._stop = threading.Event()
        self._failures: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(number, random.Random(seed + number))) for number in range(WRITERS)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def _run(self, writer: int, chance: random.Random) -> None:
        try:
            with psycopg.connect(self._url) as conn:
                while not self._stop.is_set():
                    numbers = self._transaction(conn, writer, chance)
                    time.sleep(self._pause * numbers)
        except BaseException as error:  # noqa: BLE001 - a thread that ends quietly would look like success
            self._failures.append(error)

    def _transaction(self, conn: psycopg.Connection[object], writer: int, chance: random.Random) -> int:
        numbers = [next(self._numbers) for _ in range(chance.randint(1, 20))]
        for number in numbers:
            key = f"{writer}-{chance.randrange(KEYS)}"
            conn.execute(
                "insert into relay.outbox (kind, key, payload) values ('crash', %s, %s)",
                [key, json.dumps([number, key])],
            )
        if chance.random() < ROLLED_BACK:
            conn.rollback()
        else:
            conn.commit()
            self.committed.update(numbers)
        return len(numbers)
