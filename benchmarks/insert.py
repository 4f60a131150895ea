"""What routing adds to an insert: rows whose sink the trigger finds, against rows that name it."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks.report import Report
from benchmarks.stage import PAYLOAD_BYTES, Stage, stage

ROWS = 20_000
ROUNDS = 15

CONFIGURATION = """
[sinks.emails]
type = "memory"
[sinks.orders]
type = "memory"
order = "key"
[sinks.audit]
type = "memory"
[[routes]]
kind = "order.*"
sink = "orders"
[[routes]]
kind = "audit.*"
sink = "audit"
[[routes]]
kind = "Send*"
sink = "emails"
"""

# Three columns more or less in the list would be measured too, so both give the same ones.
STATEMENT = """
insert into relay.outbox (sink, shard, kind, key, payload, message_id)
select %(sink)s, %(shard)s, 'SendReceipt', n::text, json_build_array(n, repeat('x', %(bytes)s)), gen_random_uuid()
  from generate_series(1, %(rows)s) n
"""


def main() -> None:
    report = Report("insert")
    for postgres in (15, 18):
        with tempfile.TemporaryDirectory() as folder, stage(postgres, CONFIGURATION, Path(folder)) as here:
            plain, routed = [], []
            for _ in range(ROUNDS):
                plain.append(seconds(here, "emails", 0))
                routed.append(seconds(here, None, None))
            for what, times in (("plain", plain), ("routed", routed)):
                value = min(times) / ROWS * 1e6
                report.add(f"{what} insert, {ROWS} rows a statement, PostgreSQL {postgres}", value, "µs/row")
            report.add(
                f"routed insert against plain, PostgreSQL {postgres}", min(routed) / min(plain), "times",
                versus=f"the same rows with sink and shard given, best of {ROUNDS}", at_most=1.4,
            )  # fmt: skip
    report.finish()


def seconds(here: Stage, sink: str | None, shard: int | None) -> float:
    here.empty()
    params = {"sink": sink, "shard": shard, "bytes": PAYLOAD_BYTES - 15, "rows": ROWS}
    started = time.perf_counter()
    here.conn.execute(STATEMENT, params)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
