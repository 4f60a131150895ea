"""How much memory a relay needs beside a large backlog, and how soon it delivers from it."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks.relays import run_relay
from benchmarks.report import Report
from benchmarks.stage import resident_mib, stage
from tests.servers.redis import run_redis

BACKLOG = 5_000_000
STEP = 250_000
WATCHED_S = 15.0

CONFIGURATION = """
[sinks.events]
type = "redis-stream"
url = "{redis}"
stream = "events"
maxlen = 1000
[[routes]]
kind = "event"
sink = "events"
"""


def main() -> None:
    report = Report("memory")
    with tempfile.TemporaryDirectory() as name, run_redis("redis:7.0") as redis:
        folder = Path(name)
        with stage(18, CONFIGURATION.format(redis=redis.url), folder, fsync="off") as here:
            for _ in range(BACKLOG // STEP):
                here.write("event", STEP)
            started = time.perf_counter()
            with run_relay(here, folder) as relay:
                client = redis.client()
                while not client.exists("events"):
                    time.sleep(0.005)
                report.add("first delivery after start", time.perf_counter() - started, "s", versus=_versus())
                peak = 0.0
                until = time.perf_counter() + WATCHED_S
                while time.perf_counter() < until:
                    peak = max(peak, resident_mib(relay.pid))
                    time.sleep(0.05)
    report.add("relay's resident memory, highest", peak * 2**20 / 1e6, "MB", versus=_versus(), at_most=150)
    report.finish()


def _versus() -> str:
    return f"{BACKLOG:,} messages waiting"


if __name__ == "__main__":
    main()
