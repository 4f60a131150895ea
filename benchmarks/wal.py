"""What claims and settles cost in WAL, at both levels, without a publication of the queue and with one."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.order import CONFIGURATION
from benchmarks.report import Report
from benchmarks.stage import Stage, stage

MESSAGES = 50_000
ROUNDS = 2
AT_MOST = {
    ("replica", "rows"): 260,
    ("replica", "keys"): 80,
    ("logical", "keys"): 120,
    ("logical, published inserts", "keys"): 120,
}
"""What others cost is what PostgreSQL writes of whole rows."""
NAMES = {"rows": "row claims", "keys": "shard claims"}


def main() -> None:
    report = Report("wal")
    for postgres in (15, 18):
        for level in ("replica", "logical"):
            measure(report, postgres, level)
    report.finish()


def measure(report: Report, postgres: int, level: str) -> None:
    with tempfile.TemporaryDirectory() as name, stage(postgres, CONFIGURATION, Path(name), wal_level=level) as here:
        add(report, here, postgres, level)
        if level == "logical":
            here.conn.execute("create publication p for all tables with (publish = 'insert')")
            add(report, here, postgres, f"{level}, published inserts")
            here.conn.execute("alter publication p set (publish = 'insert, update, delete')")
            here.conn.execute("select relay.set_identities()")
            add(report, here, postgres, f"{level}, published")


def add(report: Report, here: Stage, postgres: int, what: str) -> None:
    for sink, name in NAMES.items():
        cost = min(one_round(here, sink) for _ in range(1 + ROUNDS))
        most = AT_MOST.get((what, sink))
        report.add(f"{name}, WAL at {what}, PostgreSQL {postgres}", cost, "bytes/message", at_most=most)


def one_round(here: Stage, sink: str) -> float:
    here.empty()
    here.write(sink, MESSAGES, keys=1000)
    before = here.wal()
    here.drain(sink, 1)
    here.close_engines()
    return (here.wal() - before) / MESSAGES


if __name__ == "__main__":
    main()
