"""What order by key costs the server, and what a stuck key costs the others."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks.report import Report
from benchmarks.stage import Stage, stage
from sinks.base import DELIVERED, Hold, Message, Outcome

MESSAGES = 100_000
STUCK = 100_000
ROUNDS = 8

CONFIGURATION = """
[sinks.keys]
type = "memory"
order = "key"
[sinks.rows]
type = "memory"
[[routes]]
kind = "keys"
sink = "keys"
[[routes]]
kind = "rows"
sink = "rows"
"""


def main() -> None:
    report = Report("order")
    for postgres in (15, 18):
        with tempfile.TemporaryDirectory() as folder, stage(postgres, CONFIGURATION, Path(folder)) as here:
            cost(report, here, postgres)
            stuck(report, here, postgres)
    report.finish()


def cost(report: Report, here: Stage, postgres: int) -> None:
    rows, _ = drained(here, "rows", 1)
    report.add(f"yardstick: row claims, 1 worker, server CPU, PostgreSQL {postgres}", rows, "µs/message")
    for workers in (1, 2, 4):
        cpu, wal = drained(here, "keys", workers)
        what = f"shard claims, {workers} workers"
        report.add(f"{what}, server CPU, PostgreSQL {postgres}", cpu, "µs/message", at_most=5)
        report.add(f"{what}, WAL, PostgreSQL {postgres}", wal, "bytes/message", at_most=80)


def drained(here: Stage, sink: str, workers: int) -> tuple[float, float]:
    """The lowest CPU time of the server, µs a message, and WAL, bytes a message, of some rounds.

    The same connections do all of them, and the first one is for them to plan their statements.
    """
    cpu, wal = [], []
    engines = here.engines(sink, workers)
    for _ in range(1 + ROUNDS):
        here.empty()
        here.write(sink, MESSAGES, keys=1000)
        before, used = here.wal(), here.server_cpu()
        here.run(engines)
        cpu.append((here.server_cpu() - used) / MESSAGES * 1e6)
        wal.append((here.wal() - before) / MESSAGES)
    here.close_engines()
    return min(cpu[1:]), min(wal[1:])


def stuck(report: Report, here: Stage, postgres: int) -> None:
    """Throughput of other keys, with and without many messages behind two keys that are not delivered."""
    alone, beside = [], []
    for _ in range(ROUNDS):
        alone.append(rate(here, 0))
        beside.append(rate(here, STUCK))
    report.add(f"other keys alone, PostgreSQL {postgres}", max(alone), "messages/s")
    report.add(
        f"other keys beside {STUCK:,} messages behind two stuck keys, PostgreSQL {postgres}", max(beside) / max(alone),
        "times", versus="without them, same run", at_least=0.9,
    )  # fmt: skip


def rate(here: Stage, behind: int) -> float:
    here.empty()
    claims = here.claims("keys")
    if behind:
        here.conn.execute(
            "insert into relay.outbox (kind, key, payload) select 'keys', 'stuck-' || (n %% 2), '1'"
            " from generate_series(1, %s) n",
            [behind],
        )
        while claim := claims.claim(1000):
            claims.settle(claim, claims.judge(claim, [answer(message) for message in claim.messages]))
    here.write("keys", MESSAGES, keys=1000)
    passed = 0
    started = time.perf_counter()
    while passed < MESSAGES:
        claim = claims.claim(1000)
        if claim is None:
            continue
        verdict = claims.judge(claim, [answer(message) for message in claim.messages])
        claims.settle(claim, verdict)
        passed += len(verdict.delivered)
    seconds = time.perf_counter() - started
    claims.close()
    return MESSAGES / seconds


def answer(message: Message) -> Outcome:
    return Hold("stuck", "stuck") if (message.key or "").startswith("stuck") else DELIVERED


if __name__ == "__main__":
    main()
