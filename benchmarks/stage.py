"""What the benchmarks measure on: a fresh PostgreSQL with the relay's schema, and meters on it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from relay.claims.destinations import Destinations
from relay.claims.edge import Edge
from relay.claims.rows import RowClaims
from relay.claims.scan import Scan
from relay.claims.shards import ShardClaims
from relay.config.settings import Settings, load
from relay.database.connection import Database
from relay.process.circuit import Circuit
from relay.process.engine import Engine
from relay.process.leases import Leases
from relay.process.parts import new_claims
from relay.process.poll import Poll
from relay.process.service import spare_collector
from relay.process.stopping import Stopping
from relay.telemetry.metrics import Metrics
from tests.servers.postgres import migrate, new_cluster, new_database

PAYLOAD_BYTES = 300
SERVER = {
    "fsync": "on", "shared_buffers": "512MB", "max_wal_size": "16GB", "checkpoint_timeout": "1h",
    "wal_init_zero": "off",
}  # fmt: skip
"""As in production, but with no checkpoint in between, whose full-page images would count for whoever comes next. And
where WAL files are used again, nobody fills them with zeros first."""


@dataclass
class Stage:
    """One database, and the settings of the sinks in it."""

    url: str
    settings: Settings
    conn: psycopg.Connection[Any]

    def write(self, kind: str, messages: int, *, keys: int = 0) -> None:
        """Insert so many messages of a kind, in one statement; of so many keys, 0 = without."""
        self.conn.execute(
            """
            insert into relay.outbox (kind, key, payload)
            select %(kind)s, case when %(keys)s > 0 then (n %% greatest(%(keys)s, 1))::text end,
                   json_build_array(n, repeat('x', %(bytes)s))
              from generate_series(1, %(messages)s) n
            """,
            {"kind": kind, "keys": keys, "messages": messages, "bytes": PAYLOAD_BYTES - 15},
        )

    def empty(self) -> None:
        self.conn.execute("truncate relay.outbox, relay.claims, relay.stuck_keys")

    def wal(self) -> int:
        """Bytes of WAL so far."""
        row = self.conn.execute("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
        return int(row[0]) if row else 0

    def claims(self, sink: str) -> RowClaims | ShardClaims:
        """A way to claim, on a connection of its own."""
        return new_claims(Database(self.url), self.settings.sinks[sink], "benchmark")

    def server_cpu(self, name: str = "outbox-relay") -> float:
        """Seconds of CPU that backends of this application name have used so far."""
        rows = self.conn.execute("select pid from pg_stat_activity where application_name like %s", [f"{name}%"])
        return sum(cpu_of(pid) for (pid,) in rows)

    def drain(self, sink: str, workers: int) -> float:
        """Run so many new engines of a sink until nothing is ready; seconds. The connections stay open."""
        return self.run(self.engines(sink, workers))

    def engines(self, sink: str, workers: int) -> list[Engine]:
        """Those of a relay with so many workers."""
        settings = self.settings.sinks[sink].model_copy(update={"workers": workers})
        circuit, destinations, leases, metrics = Circuit(), Destinations(), Leases(), Metrics()
        start = Edge(sink, settings.shards) if settings.ordered else Scan()
        engines = [
            Engine(
                settings, claims=new_claims(Database(self.url), settings, "benchmark", start, destinations),
                sink=settings.sink_class(settings.config), circuit=circuit, destinations=destinations, leases=leases,
                stopping=self._stopping, metrics=metrics,
            )
            for _ in range(workers)
        ]  # fmt: skip
        self._engines += engines
        return engines

    def run(self, engines: Sequence[Engine]) -> float:
        """Until nothing is ready; seconds."""

        def work(engine: Engine) -> None:
            poll = Poll(engine, self._stopping)
            with psycopg.connect(self.url, autocommit=True) as conn:
                while not poll.idle or ready(conn, engine.name):
                    poll.round()

        started = time.perf_counter()
        together([partial(work, engine) for engine in engines])
        return time.perf_counter() - started

    def close_engines(self) -> None:
        while self._engines:
            self._engines.pop().close()

    def __post_init__(self) -> None:
        self._engines: list[Engine] = []
        self._stopping = Stopping()


@contextmanager
def stage(postgres: int, configuration: str, folder: Path, **server: str | int) -> Iterator[Stage]:
    """A fresh cluster of this version, the schema, and the sinks and routes of a relay.toml."""
    spare_collector()
    with new_cluster(postgres) as cluster, cluster.run(**{**SERVER, **server}), new_database(cluster.url()) as url:
        migrate(url)
        file = folder / "relay.toml"
        file.write_text(configuration, encoding="utf-8")
        settings = load(file, {"RELAY_DATABASE_URL": url})
        with psycopg.connect(url, autocommit=True) as conn:
            for sink in settings.sinks.values():
                conn.execute("insert into relay.sinks (name, shards) values (%s, %s)", [sink.name, sink.shards])
            for route in settings.routes:
                conn.execute("insert into relay.routes (kind, sink) values (%s, %s)", [route.kind, route.sink])
            here = Stage(url, settings, conn)
            yield here
            here.close_engines()


def ready(conn: psycopg.Connection[Any], sink: str) -> bool:
    """Whether anything of a sink is left."""
    row = conn.execute("select exists (select from relay.outbox where sink = %s)", [sink]).fetchone()
    return bool(row and row[0])


def cpu_of(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> float:
    """MiB of memory that a process holds."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def together(works: list[Callable[[], None]]) -> None:
    """Run them in threads, and wait for all."""
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
