"""What a session does that holds an old snapshot, so that nothing which left the queue can be cleaned away."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import psycopg

from benchmarks.report import Report
from benchmarks.stage import Stage, stage

MESSAGES = 300_000
BATCH = 1000
WINDOW = 30
"""Claims at the beginning and at the end whose medians are compared."""

CONFIGURATION = """
[sinks.rows]
type = "memory"
options = { keep = false }
[sinks.keys]
type = "memory"
order = "key"
[[routes]]
kind = "rows"
sink = "rows"
[[routes]]
kind = "keys"
sink = "keys"
""".replace("options = { keep = false }\n", "")


def main() -> None:
    report = Report("horizon")
    for postgres in (15, 18):
        with tempfile.TemporaryDirectory() as folder, stage(postgres, CONFIGURATION, Path(folder)) as here:
            for sink, what in (("rows", "row claims"), ("keys", "shard claims")):
                measure(report, here, sink, f"{what}, PostgreSQL {postgres}")
    report.finish()


def measure(report: Report, here: Stage, sink: str, what: str) -> None:
    here.empty()
    here.conn.execute("vacuum relay.outbox")
    with psycopg.connect(here.url) as holder:
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        holder.execute("select count(*) from relay.outbox")
        times = pass_through(here, sink)
    first, last = statistics.median(times[:WINDOW]), statistics.median(times[-WINDOW:])
    report.add(f"{what}, first claims, p50", first * 1e3, "ms/claim")
    report.add(f"{what}, last claims, p50", last * 1e3, "ms/claim")
    report.add(
        f"{what}, last against first", last / first, "times",
        versus=f"a snapshot held while {MESSAGES:,} messages pass", at_most=1.5,
    )  # fmt: skip


def pass_through(here: Stage, sink: str) -> list[float]:
    """Write, claim and settle batch by batch; seconds of each claim."""
    from sinks.base import DELIVERED

    claims = here.claims(sink)
    times: list[float] = []
    passed = 0
    while passed < MESSAGES:
        here.write(sink, BATCH, keys=1000)
        while True:
            started = time.perf_counter()
            claim = claims.claim(BATCH)
            if claim is None:
                break
            times.append(time.perf_counter() - started)
            claims.settle(claim, claims.judge(claim, [DELIVERED] * len(claim.messages)))
            passed += len(claim.messages)
            if len(claim.messages) == BATCH:
                break
    claims.close()
    return times


if __name__ == "__main__":
    main()
