"""The relay as a process: threads, signals, start and end.

Threads: one `Poll` for each worker of each sink, each with its own connection and its own sender; a `Heartbeat`, a
`Maintenance` and a `Listener`. The main thread only waits for signals.

The end: a first signal stops claiming, and what is claimed is finished; after the grace, or at a second
signal, what is still being sent is given back, marked as unknown, and the process goes.
"""

from __future__ import annotations

import gc
import os
import queue
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType

import structlog

from relay.backoff import Backoff
from relay.claims.claim import LostClaim
from relay.claims.edge import Edge
from relay.claims.rows import RowClaims
from relay.claims.scan import Scan
from relay.claims.shards import ShardClaims
from relay.config.settings import Settings, SinkSettings
from relay.database.connection import Database
from relay.database.schema import check_version
from relay.errors import DatabaseUnavailable, RelayError, UsageError
from relay.process.applied import Drain, check_sinks
from relay.process.circuit import Circuit
from relay.process.engine import Engine
from relay.process.heartbeat import Heartbeat
from relay.process.http import HttpServer
from relay.process.leases import Leases
from relay.process.listener import Listener
from relay.process.maintenance import Maintenance
from relay.process.metrics import Metrics
from relay.process.poll import Poll
from relay.process.stopping import Stopping
from relay.process.store import Store
from sinks.base import SinkConfig

log = structlog.get_logger("relay")

BUSY_CLAIMS_PER_S = 100
"""From here on a relay polls faster than a notification would come, and writers are spared them."""


GARBAGE_OBJECTS = 10_000


def spare_collector() -> None:
    """Let the garbage collector look at a batch about once, not a dozen times: a message is some ten containers while
    it is sent, and none of them garbage. It took a sixth of a relay's CPU time."""
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS)


class _StoppedEarly(Exception):
    """A signal came before anything was claimed."""


class Service:
    """One relay process.

    Args:
        settings: the whole configuration.
        only: names of the sinks to serve; empty = all.
        drain: stop once nothing is due or claimed.
        http: where to serve health and metrics, as ``HOST:PORT``.
        grace: seconds that a graceful stop may take.
    """

    def __init__(
        self,
        settings: Settings,
        only: Sequence[str] = (),
        *,
        drain: bool = False,
        http: str | None = None,
        grace: float = 9.0,
    ) -> None:
        self._settings = settings
        self._sinks = [sink for name, sink in settings.sinks.items() if not only or name in only]
        if not self._sinks:
            raise UsageError("no sink to serve: add one to the configuration, under [sinks.NAME]")
        self._drain = drain
        self._grace = grace
        self._stopping = Stopping()
        self._signals: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._leases = Leases()
        self._metrics = Metrics()
        self._circuits = {sink.name: Circuit() for sink in self._sinks}
        self._starts = {sink.name: Edge(sink.name, sink.shards) if sink.ordered else Scan() for sink in self._sinks}
        # The random part keeps a restarted container from being taken for its dead predecessor.
        self.worker = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self._polls = [self._poll(sink, number) for sink in self._sinks for number in range(sink.workers)]
        self._listener = self._make_listener()
        self._waiting = False
        self._busy = False
        self._last_claims = (time.monotonic(), 0)
        self._threads: list[threading.Thread] = []
        self._http = HttpServer(http, self._metrics.registry, self._healthy, self._ready) if http else None

    def run(self) -> None:
        """Serve until told to stop.

        Raises:
            RelayError: it could not start.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        try:
            self._wait_for_database()
        except _StoppedEarly:
            log.info("relay stopped")
        else:
            spare_collector()
            self._start_threads()
            self._watch()
            self._finish()
        if self._http:
            self._http.close()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        # Nothing but this is safe in a handler: it may interrupt a thread that holds any lock.
        self._signals.put(number)
        if self._waiting:
            # Nothing is held yet, and a database that never answers must not keep the process.
            self._waiting = False
            raise _StoppedEarly

    def _wait_for_database(self) -> None:
        """Wait for a database that fits.

        Raises:
            RelayError: it does not fit.
            _StoppedEarly: a signal came first.
        """
        self._waiting = True
        database = self._database("start")
        backoff = Backoff(0.2, 5.0)
        while True:
            try:
                check_version(database)
                check_sinks(Store(database), self._sinks)
                break
            except DatabaseUnavailable as error:
                if backoff.failures == 0:
                    log.warning("waiting for the database", reason=str(error))
                time.sleep(backoff.next())
        database.close()
        self._waiting = False

    def _start_threads(self) -> None:
        log.info("relay started", worker=self.worker, sinks=[sink.name for sink in self._sinks])
        for poll in self._polls:
            self._thread(f"sink {poll.engine.name}", poll.run)
        shortest = min(sink.lease for sink in self._sinks)
        heartbeat = Heartbeat(Store(self._database("heartbeat", shortest / 3)), self._leases, shortest, self._stopping)
        self._thread("heartbeat", heartbeat.run)
        maintenance = Maintenance(
            Store(self._database("maintenance")),
            self.worker,
            sinks=self._sinks,
            wake=self._wake,
            is_idle=self._is_idle,
            circuits=lambda: {n: c.reason for n, c in self._circuits.items() if c.reason is not None},
            metrics=self._metrics,
            stopping=self._stopping,
        )
        self._maintenance_thread = self._thread("maintenance", maintenance.run)
        if self._listener:
            self._thread("listener", self._listener.run)

    def _watch(self) -> None:
        """Wait for a signal, or for the queue to be empty."""
        database = self._database("drain")
        drain = Drain(Store(database), [sink.name for sink in self._sinks])
        while not self._signalled(0.1):
            if self._drain and all(poll.idle for poll in self._polls) and drain.is_done():
                break
        database.close()

    def _finish(self) -> None:
        held = sum(len(lease.claim.messages) for lease in self._leases.held())
        log.info("draining", messages=held)
        self._stopping.stop()
        self._wake()
        deadline = time.monotonic() + self._grace
        senders = [thread for thread in self._threads if thread.name.startswith("sink ")]
        while any(thread.is_alive() for thread in senders):
            if time.monotonic() > deadline or self._signalled(0.02):
                self._give_back()
                break
        self._stopping.stop_at_once()
        self._maintenance_thread.join(2.0)
        log.info("relay stopped", delivered=self._metrics.delivered())

    def _give_back(self) -> None:
        """Release what is still being sent, so that another relay takes it now and not after the lease."""
        self._stopping.stop_at_once()
        database = self._database("stop", 2.0)
        for lease in self._leases.held():
            claim = lease.claim
            lease.lose()
            claims = new_claims(database, self._settings.sinks[claim.sink], self.worker)
            try:
                claims.release(claim, unknown=True, reason="the relay was stopped during the send")
                log.warning("claim given back", sink=claim.sink, count=len(claim.messages))
            except LostClaim:
                pass  # It was settled a moment ago.
            except DatabaseUnavailable as error:
                log.warning("claims left to their leases", reason=str(error))
                return
            except RelayError as error:
                log.warning("claim left to its lease", sink=claim.sink, count=len(claim.messages), reason=str(error))

    def _signalled(self, seconds: float) -> bool:
        try:
            number = self._signals.get(timeout=seconds)
        except queue.Empty:
            return False
        log.info("signal", name=signal.Signals(number).name)
        return True

    def _poll(self, sink: SinkSettings, number: int) -> Poll:
        config = SinkConfig(sink.name, sink.options, sink.send_timeout, sink.ordered, sink.client)
        database = self._database(f"{sink.name}/{number}")
        engine = Engine(
            sink,
            claims=new_claims(database, sink, f"{self.worker}:{sink.name}/{number}", self._starts[sink.name]),
            sink=sink.sink_class(config),
            circuit=self._circuits[sink.name],
            leases=self._leases,
            stopping=self._stopping,
            metrics=self._metrics,
        )
        return Poll(engine, self._stopping)

    def _make_listener(self) -> Listener | None:
        database = self._settings.database
        if not database.notify:
            return None
        connection = Database(
            database.listen_url or database.url, timeout=database.timeout, name=f"outbox-relay listener {self.worker}"
        )
        probe = f"relay_probe_{secrets.token_hex(4)}"
        return Listener(connection, self._wake, probe, self._metrics, self._stopping)

    def _database(self, what: str, timeout: float | None = None) -> Database:
        database = self._settings.database
        return Database(
            database.url,
            timeout=min(timeout or database.timeout, database.timeout),
            name=f"outbox-relay {what} {self.worker}",
            pooled=database.listen_url is not None,
        )

    def _thread(self, name: str, run: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)
        return thread

    def _wake(self) -> None:
        for poll in self._polls:
            poll.wake()

    def _is_idle(self) -> bool:
        now, claims = time.monotonic(), sum(poll.engine.claimed for poll in self._polls)
        then, before = self._last_claims
        if now - then >= 1.0:
            self._busy = (claims - before) / (now - then) > BUSY_CLAIMS_PER_S
            self._last_claims = (now, claims)
        return not self._busy and self._listener is not None and self._listener.hears

    def _healthy(self) -> bool:
        return all(thread.is_alive() for thread in self._threads)

    def _ready(self) -> bool:
        return bool(self._threads) and all(poll.engine.trouble is None for poll in self._polls)


def new_claims(
    database: Database, sink: SinkSettings, worker: str, start: Edge | Scan | None = None
) -> RowClaims | ShardClaims:
    """The way to claim that this sink needs. `start`: shared by its workers."""
    if sink.ordered:
        return ShardClaims(database, sink, worker, start if isinstance(start, Edge) else None)
    return RowClaims(database, sink, worker, start if isinstance(start, Scan) else None)
