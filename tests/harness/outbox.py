"""A database with messages, a scripted broker, and real relays between them: `relay run` as a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import psycopg
import pytest

from relay.admin.apply import apply
from relay.config.settings import load
from relay.database.connection import Database
from tests.harness.scripted import ScriptedBroker
from tests.servers.base import LOCALHOST, Server, free_port, run_server, wait_until

QUICK: Mapping[str, Any] = {
    "lease": "2s",
    "send_timeout": "1s",
    "batch_messages": 20,
    "backoff": {"base": "100ms", "max": "1s"},
}
"""Settings of a sink, scaled down."""


@dataclass
class Relay:
    """A running `relay run`."""

    server: Server
    port: int

    @property
    def pid(self) -> int:
        return self.server.pid

    def kill(self) -> None:
        self.server.kill()

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def exit_code(self, timeout: float = 10.0) -> int:
        """Wait for its end."""
        return self.server.process.wait(timeout)

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        """What it logged: all, or the events of one name."""
        lines = self.server.log.read_text().split("\n")[:-1]
        found = [json.loads(line) for line in lines if line.startswith("{")]
        return [event for event in found if name in (None, event["event"])]

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels."""
        return sum(
            float(line.rpartition(" ")[2])
            for line in self.get("metrics").splitlines()
            if line.partition("{")[0].partition(" ")[0] == name
            if all(f'{label}="{value}"' in line for label, value in labels.items())
        )

    def get(self, path: str) -> str:
        """What it serves there."""
        return _get(self.port, path)[1]

    def healthy(self) -> bool:
        return _get(self.port, "healthz")[0] == 200

    def ready(self) -> bool:
        return _get(self.port, "readyz")[0] == 200


def _get(port: int, path: str) -> tuple[int, str]:
    with closing(HTTPConnection(LOCALHOST, port, timeout=5)) as connection:
        connection.request("GET", f"/{path}")
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


@dataclass
class Outbox:
    """One database of this test's own, and what is configured for it."""

    url: str
    folder: Path
    broker: ScriptedBroker
    environment: dict[str, str] = field(default_factory=dict)

    def configure(
        self,
        sinks: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        routes: Sequence[Mapping[str, Any]] | None = None,
        database: Mapping[str, Any] | None = None,
        applied: bool = True,
        **keys: Any,
    ) -> None:
        """Configure sinks (scripted and quick, unless they say otherwise) and apply that to the database.

        Args:
            sinks: by name; default: one, called `main`.
            routes: default: everything goes to the first sink.
            database: keys of `[database]` besides `url`.
            applied: False: leave the database as it is.
            keys: further keys of every sink.
        """
        sinks = sinks or {"main": {}}
        whole = {name: self._sink({**keys, **own}) for name, own in sinks.items()}
        self.environment = {
            "RELAY_SINKS": json.dumps(whole),
            "RELAY_ROUTES": json.dumps(routes or [{"kind": "*", "sink": next(iter(whole))}]),
            "RELAY_DATABASE": json.dumps({"url": self.url, "timeout": "5s", **(database or {})}),
            "RELAY_LOG": json.dumps({"format": "json", "level": "info"}),
        }
        if applied:
            with closing(Database(self.url)) as connection:
                apply(connection, load(None, self.environment))

    def _sink(self, own: Mapping[str, Any]) -> dict[str, Any]:
        scripted = {"type": "scripted", "folder": str(self.broker.folder)} if "type" not in own else {}
        return {**scripted, **QUICK, **own}

    @contextmanager
    def relay(self, *options: str, wait: bool = True, timeout: float = 20.0, **database: Any) -> Iterator[Relay]:
        """`relay run` for the length of a `with` block.

        Args:
            wait: until it is ready.
            timeout: seconds until it must be.
            database: keys of `[database]` that it sees differently.
        """
        port = free_port()
        environment = {**self.environment}
        environment["RELAY_DATABASE"] = json.dumps({**json.loads(environment["RELAY_DATABASE"]), **database})
        # As people start it: `python -m` would look for modules in the current directory first.
        argv = [str(Path(sys.executable).with_name("relay")), "run", "--http", f"{LOCALHOST}:{port}", *options]

        def ready() -> bool:
            return _get(port, "readyz" if wait else "healthz")[0] == 200

        with run_server(argv, ready=ready, name="relay", env=environment, cwd=self.folder, timeout=timeout) as server:
            try:
                yield Relay(server, port)
            except BaseException:
                print(f"the relay {server.pid} said:", server.tail(), sep="\n")
                raise

    def run_relay(self, *arguments: str, timeout: float = 30.0, **environment: str) -> subprocess.CompletedProcess[str]:
        """A `relay` command, to its end."""
        return subprocess.run(
            [sys.executable, "-m", "relay", *arguments],
            env={**os.environ, **self.environment, **environment},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def sql(self, text: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run one statement in its own transaction; the rows, if it gives any."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(text.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []

    def insert(self, count: int = 1, kind: str = "made", **columns: Any) -> list[int]:
        """Write messages in one transaction; their ids."""
        values = {"kind": kind, "payload": "{}", **columns}
        names = ", ".join(values)
        marks = ", ".join(["%s"] * len(values))
        rows = self.sql(
            f"insert into relay.outbox ({names}) select {marks} from generate_series(1, %s) returning id",
            *values.values(),
            count,
        )
        return [row[0] for row in rows]

    def insert_timed(self, delay: float = 0.0) -> None:
        """Write a message that says when it is due: in so many seconds."""
        self.sql(
            "insert into relay.outbox (kind, payload, run_at)"
            " select 'timed', to_json(extract(epoch from now + wait)), nullif(now + wait, now)"
            " from (select clock_timestamp() as now, make_interval(secs => %s) as wait) as clock",
            delay,
        )

    def end_sessions(self, of: str = "") -> int:
        """Terminate the database sessions of the relays, or of one kind of their threads; how many."""
        ended = self.sql(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and application_name like %s",
            f"outbox-relay {of}%",
        )
        return len(ended)

    def count(self, where: str = "true", table: str = "outbox") -> int:
        """How many rows a table of the relay has."""
        number: int = self.sql(f"select count(*) from relay.{table} where {where}")[0][0]
        return number

    def is_empty(self) -> bool:
        """Whether nothing is live or claimed."""
        return self.count() == 0 and self.count(table="claims") == 0

    def wait_until_empty(self, timeout: float = 20.0) -> None:
        wait_until(self.is_empty, timeout=timeout, interval=0.05, what="the outbox being empty")


@pytest.fixture
def outbox(relay_database_url: str, tmp_path: Path) -> Outbox:
    """A database and a scripted broker; `configure` it before use."""
    folder = tmp_path / "broker"
    folder.mkdir()
    return Outbox(relay_database_url, tmp_path, ScriptedBroker(folder))
