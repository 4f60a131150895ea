"""How fast a backlog leaves, and what that costs the server; beside it the loop of the textbook, in the same run."""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path

import psycopg
import redis

from benchmarks import textbook
from benchmarks.report import Report
from benchmarks.stage import PAYLOAD_BYTES, Stage, stage
from tests.servers.redis import run_redis

MESSAGES = 100_000
SUSTAINED_S = 8.0
ROUNDS = 3

CONFIGURATION = """
[sinks.memory]
type = "memory"
[sinks.stream]
type = "redis-stream"
url = "{redis}"
stream = "events"
[sinks.sidekiq]
type = "sidekiq"
url = "{redis}"
[[routes]]
kind = "to.memory"
sink = "memory"
[[routes]]
kind = "to.stream"
sink = "stream"
[[routes]]
kind = "SendReceipt"
sink = "sidekiq"
"""
KINDS = {"memory": "to.memory", "stream": "to.stream", "sidekiq": "SendReceipt"}


def main() -> None:
    report = Report("drain")
    with tempfile.TemporaryDirectory() as folder, run_redis("redis:7.0") as server:
        broker = server.client()
        report.versions["redis-server"] = broker.info("server")["redis_version"]
        for postgres in (15, 18):
            with stage(postgres, CONFIGURATION.format(redis=server.url), Path(folder)) as here:
                measure(report, here, broker, postgres)
    report.finish()


def measure(report: Report, here: Stage, broker: redis.Redis, postgres: int) -> None:
    row = here.conn.execute("show server_version").fetchone()
    report.versions[f"postgresql {postgres}"] = str(row[0]) if row else "?"
    cost_of_claims(report, here, postgres)
    best = {"relay": 0.0, "textbook": 0.0}
    for _ in range(ROUNDS):
        best["textbook"] = max(best["textbook"], textbook_rate(here, broker))
        best["relay"] = max(best["relay"], drain_rate(here, broker, "sidekiq", 1))
    here.conn.execute("drop table textbook")
    report.add(f"drain to sidekiq, textbook loop, PostgreSQL {postgres}", best["textbook"], "messages/s")
    report.add(
        f"drain to sidekiq against textbook, PostgreSQL {postgres}", best["relay"] / best["textbook"], "times",
        versus="textbook loop in the same run, one worker each, best of 3", at_least=1.8,
    )  # fmt: skip
    for sink in KINDS:
        for workers in (1, 2, 4):
            rate = drain_rate(here, broker, sink, workers)
            report.add(f"drain to {sink}, {workers} workers, PostgreSQL {postgres}", rate, "messages/s")
    for sink in KINDS:
        rate = sustained_rate(here, broker, sink)
        report.add(f"sustained to {sink} with a writer, 1 worker, PostgreSQL {postgres}", rate, "messages/s")


def cost_of_claims(report: Report, here: Stage, postgres: int) -> None:
    """Server CPU and WAL of claim and settle alone; the lowest of some rounds, as the machine is shared."""
    cpu, wal = [], []
    for _ in range(ROUNDS):
        here.empty()
        here.write(KINDS["memory"], MESSAGES)
        before = here.wal()
        here.drain("memory", 1)
        cpu.append(here.server_cpu() / MESSAGES * 1e6)
        wal.append((here.wal() - before) / MESSAGES)
        here.close_engines()
    report.add(f"row claims, server CPU, PostgreSQL {postgres}", min(cpu), "µs/message", at_most=7)
    report.add(f"row claims, WAL, PostgreSQL {postgres}", min(wal), "bytes/message", at_most=260)
    cpu.clear()
    wal.clear()
    for _ in range(ROUNDS):
        textbook.write(here.conn, MESSAGES, PAYLOAD_BYTES)
        before = here.wal()
        with psycopg.connect(here.url, autocommit=True, application_name="textbook") as conn:
            textbook.drain_to_nothing(conn)
            cpu.append(here.server_cpu("textbook") / MESSAGES * 1e6)
        wal.append((here.wal() - before) / MESSAGES)
    report.add(f"textbook loop, server CPU, PostgreSQL {postgres}", min(cpu), "µs/message")
    report.add(f"textbook loop, WAL, PostgreSQL {postgres}", min(wal), "bytes/message")


def drain_rate(here: Stage, broker: redis.Redis, sink: str, workers: int) -> float:
    broker.flushall()
    here.empty()
    here.write(KINDS[sink], MESSAGES)
    seconds = here.drain(sink, workers)
    here.close_engines()
    return MESSAGES / seconds


def textbook_rate(here: Stage, broker: redis.Redis) -> float:
    broker.flushall()
    textbook.write(here.conn, MESSAGES, PAYLOAD_BYTES)
    started = time.perf_counter()
    textbook.drain_to_sidekiq(here.url, broker)
    return MESSAGES / (time.perf_counter() - started)


def sustained_rate(here: Stage, broker: redis.Redis, sink: str) -> float:
    """Messages delivered a second while a writer inserts as fast as it can, a thousand a transaction."""
    broker.flushall()
    here.empty()
    written = 0
    until = time.perf_counter() + SUSTAINED_S
    started = threading.Event()

    def write() -> None:
        nonlocal written
        while time.perf_counter() < until:
            here.write(KINDS[sink], 1000)
            written += 1000
            started.set()

    writer = threading.Thread(target=write)
    writer.start()
    started.wait()
    seconds = here.drain(sink, 1)
    writer.join()
    left = here.conn.execute("select count(*) from relay.outbox").fetchone()
    here.close_engines()
    return (written - (int(left[0]) if left else 0)) / seconds


if __name__ == "__main__":
    main()
