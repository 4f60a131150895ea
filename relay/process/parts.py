"""The parts of one relay, made from its settings. What runs them, and ends them, is in `service.py`."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from relay.claims.destinations import Destinations
from relay.claims.edge import Edge
from relay.claims.rows import RowClaims
from relay.claims.scan import Scan
from relay.claims.shards import ShardClaims
from relay.config.settings import Settings, SinkSettings, reload_sink
from relay.database.connection import Database
from relay.process.circuit import Circuit
from relay.process.engine import Engine
from relay.process.guard import run_guarded
from relay.process.heartbeat import Heartbeat
from relay.process.leases import Leases
from relay.process.listener import Listener
from relay.process.maintenance import Looks, Maintenance
from relay.process.poll import Poll
from relay.process.stopping import Drain, Stopping
from relay.process.store import Store
from relay.telemetry.backlog import Backlog
from relay.telemetry.metrics import Metrics
from sinks.base import Sink


class Loops:
    """What serves one sink: a loop and a thread for each of its workers. Ends once, and does not begin again."""

    def __init__(self, destination: str, polls: Sequence[Poll], stopping: Stopping) -> None:
        self.destination = destination
        self.polls = polls
        self._stopping = stopping
        self._threads = [
            threading.Thread(target=run_guarded, args=(name, poll.run, stopping), name=name, daemon=True)
            for poll in polls
            for name in [f"sink {poll.engine.name}"]
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Claim nothing more, finish what is claimed, and end."""
        self._stopping.stop()
        for poll in self.polls:
            poll.wake()

    def ended(self, within: float = 0.0) -> bool:
        """Whether nothing of it runs any more, or will within so many seconds."""
        deadline = time.monotonic() + within
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def healthy(self) -> bool:
        return self._stopping.is_set() or all(thread.is_alive() for thread in self._threads)


class Renewal:
    """Makes a sender anew when what its configuration refers to has changed: a password was rotated."""

    def __init__(self, settings: Settings, sink: SinkSettings) -> None:
        self._settings = settings
        self._path = ("sinks", sink.name)
        self._written = settings.sources.tree["sinks"][sink.name]

    def __call__(self, sender: Sink) -> Sink:
        """This sender, or another.

        Raises:
            ConfigError, BadReference: nothing can be made of what the configuration refers to now.
        """
        written = self._settings.sources.again(self._path)
        if written == self._written:
            return sender
        sink = reload_sink(self._settings, self._path[1])
        sender.close()
        self._written = written
        return sink.sink_class(sink.config)


class Parts:
    """Makes what a relay consists of, and holds what its parts share.

    Args:
        settings: the whole configuration, as it was at the start.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._circuits: dict[str, Circuit] = {}
        self._destinations: dict[str, Destinations] = {}
        self._served: dict[str, SinkSettings] = {}
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
            self._settings.database_url,
            timeout=min(timeout or database.timeout, database.timeout),
            name=f"outbox-relay {what} {self.worker}",
            pooled=database.listen_url is not None,
        )

    def loops(self, settings: Settings, sink: SinkSettings, destination: str) -> Loops:
        """Everything that serves one sink.

        Args:
            settings: the configuration that the sink is from.
            destination: what the sink says of where it delivers.
        """
        self._served[sink.name] = sink
        self._destinations[sink.name] = Destinations()
        self._circuits[sink.name] = Circuit()
        start = Edge(sink.name, sink.shards) if sink.ordered else Scan()
        stopping = self.stopping.part()
        polls = [self._poll(settings, sink, number, start, stopping) for number in range(sink.workers)]
        return Loops(destination, polls, stopping)

    def backlog(self) -> Backlog:
        return Backlog(self.database("backlog"), self.worker, self.metrics.registry, self.stopping.wait)

    def heartbeat(self, shortest: Callable[[], float]) -> Heartbeat:
        return Heartbeat(Store(self.database("heartbeat", shortest() / 3)), self.leases, shortest, self.stopping)

    def maintenance(
        self, roster: Looks, store: Store, *, wake: Callable[[], None], is_idle: Callable[[], bool]
    ) -> Maintenance:
        return Maintenance(
            store,
            self.worker,
            roster=roster,
            wake=wake,
            is_idle=is_idle,
            circuits=self._open_circuits,
            destinations=self._destinations,
            metrics=self.metrics,
            stopping=self.stopping,
        )

    def listener(self, wake: Callable[[], None]) -> Listener | None:
        """None where the settings forbid notifications."""
        database = self._settings.database
        if not database.notify:
            return None
        connection = Database(
            partial(self._settings.database_url, listen=True),
            timeout=database.timeout,
            name=f"outbox-relay listener {self.worker}",
        )
        return Listener(connection, wake, f"relay_probe_{secrets.token_hex(4)}", self.metrics, self.stopping)

    def drain(self, database: Database, sinks: Sequence[str]) -> Drain:
        return Drain(Store(database), sinks)

    def claims_of(self, sink: str, database: Database) -> RowClaims | ShardClaims:
        """What ends the claims of a sink from outside its loops."""
        return new_claims(database, self._served[sink], self.worker)

    def _poll(
        self, settings: Settings, sink: SinkSettings, number: int, start: Edge | Scan, stopping: Stopping
    ) -> Poll:
        database = self.database(f"{sink.name}/{number}")
        engine = Engine(
            sink,
            claims=new_claims(
                database,
                sink,
                f"{self.worker}:{sink.name}/{number}",
                start,
                self._destinations[sink.name],
            ),
            sink=sink.sink_class(sink.config),
            renew=Renewal(settings, sink) if settings.sources.refers_to_file(("sinks", sink.name)) else None,
            circuit=self._circuits[sink.name],
            destinations=self._destinations[sink.name],
            leases=self.leases,
            stopping=stopping,
            metrics=self.metrics,
        )
        return Poll(engine, stopping)

    def _open_circuits(self) -> Mapping[str, str]:
        reasons = {
            name: circuit.reason or _unsettled(circuit) or self._destinations[name].blocked
            for name, circuit in list(self._circuits.items())
        }
        return {name: reason for name, reason in reasons.items() if reason is not None}


def _unsettled(circuit: Circuit) -> str | None:
    reason = next(iter(list(circuit.unsettled.values())), None)
    return None if reason is None else f"claims cannot be settled: {reason}"


def new_claims(
    database: Database,
    sink: SinkSettings,
    worker: str,
    start: Edge | Scan | None = None,
    destinations: Destinations | None = None,
) -> RowClaims | ShardClaims:
    """The way to claim that this sink needs. `start`, `destinations`: shared by its workers."""
    if sink.ordered:
        return ShardClaims(database, sink, worker, start if isinstance(start, Edge) else None, destinations)
    return RowClaims(database, sink, worker, start if isinstance(start, Scan) else None, destinations)
