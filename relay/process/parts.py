"""The parts of one relay, made from its settings. What runs them, and ends them, is in `service.py`."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence

from relay.claims.edge import Edge
from relay.claims.rows import RowClaims
from relay.claims.scan import Scan
from relay.claims.shards import ShardClaims
from relay.config.settings import Settings, SinkSettings
from relay.database.connection import Database
from relay.process.applied import Drain
from relay.process.circuit import Circuit
from relay.process.engine import Engine
from relay.process.heartbeat import Heartbeat
from relay.process.leases import Leases
from relay.process.listener import Listener
from relay.process.maintenance import Maintenance
from relay.process.poll import Poll
from relay.process.stopping import Stopping
from relay.process.store import Store
from relay.telemetry.metrics import Metrics
from sinks.base import SinkConfig


class Parts:
    """Makes what a relay consists of, and holds what its parts share.

    Args:
        settings: the whole configuration.
        sinks: those that this relay serves.
    """

    def __init__(self, settings: Settings, sinks: Sequence[SinkSettings]) -> None:
        self._settings = settings
        self._sinks = sinks
        self._circuits = {sink.name: Circuit() for sink in sinks}
        self._starts = {sink.name: Edge(sink.name, sink.shards) if sink.ordered else Scan() for sink in sinks}
        # The random part keeps a restarted container from being taken for its dead predecessor.
        self.worker = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self.stopping = Stopping()
        self.leases = Leases()
        self.metrics = Metrics()

    def database(self, what: str, timeout: float | None = None) -> Database:
        """A connection of its own.

        Args:
            what: what it is for, as `application_name` shows it.
            timeout: seconds that a statement may take, at most those of the settings.
        """
        database = self._settings.database
        return Database(
            database.url,
            timeout=min(timeout or database.timeout, database.timeout),
            name=f"outbox-relay {what} {self.worker}",
            pooled=database.listen_url is not None,
        )

    def polls(self) -> list[Poll]:
        """A loop for each worker of each sink."""
        return [self._poll(sink, number) for sink in self._sinks for number in range(sink.workers)]

    def heartbeat(self) -> Heartbeat:
        shortest = min(sink.lease for sink in self._sinks)
        return Heartbeat(Store(self.database("heartbeat", shortest / 3)), self.leases, shortest, self.stopping)

    def maintenance(self, *, wake: Callable[[], None], is_idle: Callable[[], bool]) -> Maintenance:
        return Maintenance(
            Store(self.database("maintenance")),
            self.worker,
            sinks=self._sinks,
            wake=wake,
            is_idle=is_idle,
            circuits=self._open_circuits,
            metrics=self.metrics,
            stopping=self.stopping,
        )

    def listener(self, wake: Callable[[], None]) -> Listener | None:
        """None where the settings forbid notifications."""
        database = self._settings.database
        if not database.notify:
            return None
        connection = Database(
            database.listen_url or database.url, timeout=database.timeout, name=f"outbox-relay listener {self.worker}"
        )
        return Listener(connection, wake, f"relay_probe_{secrets.token_hex(4)}", self.metrics, self.stopping)

    def drain(self, database: Database) -> Drain:
        return Drain(Store(database), [sink.name for sink in self._sinks])

    def claims_of(self, sink: str, database: Database) -> RowClaims | ShardClaims:
        """What ends the claims of a sink from outside its loops."""
        return new_claims(database, self._settings.sinks[sink], self.worker)

    def _poll(self, sink: SinkSettings, number: int) -> Poll:
        config = SinkConfig(sink.name, sink.options, sink.send_timeout, sink.ordered, sink.client)
        database = self.database(f"{sink.name}/{number}")
        engine = Engine(
            sink,
            claims=new_claims(database, sink, f"{self.worker}:{sink.name}/{number}", self._starts[sink.name]),
            sink=sink.sink_class(config),
            circuit=self._circuits[sink.name],
            leases=self.leases,
            stopping=self.stopping,
            metrics=self.metrics,
        )
        return Poll(engine, self.stopping)

    def _open_circuits(self) -> Mapping[str, str]:
        return {name: circuit.reason for name, circuit in self._circuits.items() if circuit.reason is not None}


def new_claims(
    database: Database, sink: SinkSettings, worker: str, start: Edge | Scan | None = None
) -> RowClaims | ShardClaims:
    """The way to claim that this sink needs. `start`: shared by its workers."""
    if sink.ordered:
        return ShardClaims(database, sink, worker, start if isinstance(start, Edge) else None)
    return RowClaims(database, sink, worker, start if isinstance(start, Scan) else None)
