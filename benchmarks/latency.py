"""How long a message takes from its commit to the broker, at 200 a second, through a real relay into a real Redis."""

from __future__ import annotations

import json
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import redis

from benchmarks.relays import run_relay
from benchmarks.report import Report
from benchmarks.stage import Stage, stage
from tests.servers.redis import run_redis

RATE = 200
MESSAGES = 2000
WARM_UP = 300

CONFIGURATION = """
[sinks.rows]
type = "redis-stream"
url = "{redis}"
stream = "events"
[sinks.keys]
type = "redis-stream"
url = "{redis}"
stream = "events"
order = "key"
[[routes]]
kind = "rows"
sink = "rows"
[[routes]]
kind = "keys"
sink = "keys"
"""


def main() -> None:
    report = Report("latency")
    with run_redis("redis:7.0") as server:
        for postgres in (15, 18):
            for sink, what, bar in (("rows", "without order", 3.0), ("keys", "with order, 64 shards", 5.0)):
                with tempfile.TemporaryDirectory() as name:
                    folder = Path(name)
                    configuration = CONFIGURATION.format(redis=server.url)
                    with stage(postgres, configuration, folder) as here, run_relay(here, folder):
                        times = sorted(measure(here, server.client(), sink))
                p50, p99 = statistics.median(times), times[int(len(times) * 0.99)]
                versus = f"{RATE} messages a second, one transaction each"
                report.add(
                    f"commit to broker, {what}, p50, PostgreSQL {postgres}", p50 * 1e3, "ms", versus=versus, at_most=bar
                )
                report.add(f"commit to broker, {what}, p99, PostgreSQL {postgres}", p99 * 1e3, "ms", versus=versus)
    report.finish()


def measure(here: Stage, client: redis.Redis, kind: str) -> list[float]:
    client.flushall()
    arrived: dict[int, float] = {}
    reader = threading.Thread(target=read, args=(client, arrived))
    reader.start()
    committed: dict[int, float] = {}
    with psycopg.connect(here.url, autocommit=True) as conn:
        start = time.perf_counter()
        for number in range(MESSAGES):
            time.sleep(max(0.0, start + number / RATE - time.perf_counter()))
            conn.execute(
                "insert into relay.outbox (kind, key, payload) values (%s, %s, %s)",
                [kind, str(number % 500), json.dumps(number)],
            )
            committed[number] = time.perf_counter()
    reader.join()
    return [max(0.0, arrived[number] - committed[number]) for number in range(WARM_UP, MESSAGES)]


def read(client: redis.Redis, arrived: dict[int, float]) -> None:
    last = "0"
    while len(arrived) < MESSAGES:
        answer: Any = client.xread({"events": last}, block=1000)
        now = time.perf_counter()
        for _, entries in answer or []:
            for entry, fields in entries:
                arrived.setdefault(int(fields[b"payload"]), now)
                last = entry


if __name__ == "__main__":
    main()
