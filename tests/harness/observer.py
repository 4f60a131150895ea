"""Whoever wants to know how long a writer stands still."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg

BLOCKED = "select count(*) from pg_stat_activity where pid = %s and wait_event_type = 'Lock'"


@dataclass
class Observed:
    """What was seen of the writer."""

    looks: int = 0
    blocked: int = 0

    @property
    def share(self) -> float:
        """The part of its time that it waited for locks."""
        return self.blocked / max(self.looks, 1)


@contextmanager
def observed_writer(url: str) -> Iterator[Observed]:
    """A writer that inserts as often as it can for the length of a `with` block, and what an observer sees of it."""
    observed = Observed()
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(0.002):
            writer.execute("insert into relay.outbox (kind, payload) values ('observed', '{}')")

    def observe() -> None:
        while not stop.is_set():
            row = observer.execute(BLOCKED, [writer.info.backend_pid]).fetchone()
            observed.looks += 1
            observed.blocked += bool(row and row[0])
            time.sleep(0.005)

    with psycopg.connect(url, autocommit=True) as writer, psycopg.connect(url, autocommit=True) as observer:
        threads = [threading.Thread(target=work) for work in (write, observe)]
        for thread in threads:
            thread.start()
        try:
            yield observed
        finally:
            stop.set()
            for thread in threads:
                thread.join()
