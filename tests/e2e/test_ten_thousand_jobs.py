"""Ten thousand jobs, written from SQL, Python and Node, run by real Sidekiqs while relays are killed: each ran once."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import psycopg
import pytest
import redis

import relay
from tests.harness.outbox import Outbox, Relay
from tests.servers.base import wait_until
from tests.servers.node import npm_package
from tests.servers.redis import RedisServer
from tests.servers.sidekiq import every_sidekiq, sidekiq_at

pytestmark = [every_sidekiq, pytest.mark.timeout(300)]

JOBS = 10_000
KILLS = 6
FROM_SQL, FROM_FUNCTION, FROM_PYTHON, FROM_NODE = (range(at, at + JOBS // 4) for at in range(0, JOBS, JOBS // 4))
NODE = Path(__file__).with_name("write_jobs.js")


def kind(number: int) -> str:
    return "Note" if number % 2 else "NoteActive"


def write_sql(conn: psycopg.Connection) -> None:
    """As Rails does: an insert a row, and many rows in one; what is rolled back is not there."""
    one = b"insert into relay.outbox (kind, payload) values (%s, %s)"
    for number in FROM_SQL[:500]:
        with conn.transaction():
            conn.execute(one, (kind(number), f"[{number}]"))
    with conn.transaction(force_rollback=True):
        conn.execute(one, ("Note", "[-1]"))
    for at in range(500, len(FROM_SQL), 500):
        numbers = FROM_SQL[at : at + 500]
        values = ", ".join(["(%s, %s)"] * len(numbers))
        parameters = [part for number in numbers for part in (kind(number), f"[{number}]")]
        conn.execute(f"insert into relay.outbox (kind, payload) values {values}".encode(), parameters)
    for number in FROM_FUNCTION:
        conn.execute("select relay.enqueue(%s, %s)", (kind(number), f"[{number}]"))


def write_python(conn: psycopg.Connection) -> None:
    for at in range(0, len(FROM_PYTHON), 250):
        with conn.transaction():
            relay.enqueue_many(conn, [(kind(number), [number]) for number in FROM_PYTHON[at : at + 250]])


@contextmanager
def writing(url: str) -> Iterator[None]:
    """All writers, at the same time as what is in the `with` block."""
    environment = {**os.environ, "DATABASE_URL": url, "NODE_PATH": str(npm_package("pg", "8"))}
    command = ["node", str(NODE), str(FROM_NODE.start), str(FROM_NODE.stop)]
    with ExitStack() as stack:
        node = stack.enter_context(subprocess.Popen(command, env=environment))
        stack.callback(node.kill)
        threads = []
        for write in (write_sql, write_python):
            conn = stack.enter_context(psycopg.connect(url, autocommit=True))
            threads.append(Thread(target=write, args=[conn]))
            threads[-1].start()
        yield
        for thread in threads:
            thread.join()
        assert node.wait() == 0


class Relays:
    """Two of them; one that is killed is started again."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._stacks: list[ExitStack] = []
        self._relays: list[Relay] = []

    def __enter__(self) -> Relays:
        for _ in range(2):
            self._start()
        return self

    def __exit__(self, *_: object) -> None:
        for stack in self._stacks:
            stack.close()

    def kill_one(self) -> None:
        self._relays.pop(0).kill()
        self._stacks.pop(0).close()
        self._start()

    def _start(self) -> None:
        stack = ExitStack()
        self._relays.append(stack.enter_context(self._outbox.relay(wait=False)))
        self._stacks.append(stack)


def numbers(client: redis.Redis) -> list[int]:
    """The argument of each job that ran, in the order in which they ran."""
    found: Any = client.lrange("notes", 0, -1)
    return [json.loads(note)["args"][0] for note in found]


def test_each_job_ran_once(version: str, outbox: Outbox, redis_server: Callable[[str], RedisServer]) -> None:
    server = redis_server("redis:7.0")
    sink = {"type": "sidekiq", "url": server.url, "batch_messages": 200}
    outbox.configure(
        {"jobs": sink, "active": {**sink, "active_job": True}},
        routes=[{"kind": "Note", "sink": "jobs"}, {"kind": "NoteActive", "sink": "active"}],
    )
    with server.client() as client:
        client.flushall()
        with sidekiq_at(version, server.url) as sidekiq, sidekiq.running(), Relays(outbox) as relays:
            with writing(outbox.url):
                for number in range(KILLS):
                    wait_until(
                        lambda: client.llen("notes") >= JOBS * number // KILLS,  # noqa: B023
                        timeout=100,
                        what=f"kill {number}",
                    )
                    relays.kill_one()
            outbox.wait_until_empty(timeout=60)
            wait_until(lambda: client.llen("notes") >= JOBS, timeout=100, what="the last job having run")
        assert sorted(numbers(client)) == list(range(JOBS))
        assert {client.hlen("runs"), *map(int, client.hvals("runs"))} == {JOBS, 1}
        assert client.llen("queue:default") == client.zcard("retry") == client.zcard("dead") == 0
    assert outbox.count(table="dead") == 0
