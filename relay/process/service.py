"""The relay as a process: threads, signals, start and end. What the threads run is made in `parts.py`.

Threads: one `Poll` for each worker of each sink that the `Roster` has begun to serve, each with its own connection and
its own sender; a `Heartbeat`, a `Maintenance` and a `Listener`. The main thread only waits for signals.

The end: a first signal stops claiming, and what is claimed is finished; after the grace, or at a second
signal, what is still being sent is given back, marked as unknown, and the process goes.
"""

from __future__ import annotations

import gc
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType

import structlog

from relay.backoff import Backoff
from relay.claims.claim import LostClaim
from relay.config.settings import Settings
from relay.database.schema import check_version
from relay.errors import DatabaseUnavailable, RelayError
from relay.process.guard import run_guarded
from relay.process.parts import Parts
from relay.process.roster import Roster
from relay.process.store import Store
from relay.telemetry.http import HttpServer

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
        load: reads the configuration again.
        only: names of the sinks to serve; empty = all.
        drain: stop once nothing is due or claimed.
        http: where to serve health and metrics, as ``HOST:PORT``.
        grace: seconds that a graceful stop may take.
    """

    def __init__(
        self,
        settings: Settings,
        load: Callable[[], Settings],
        only: Sequence[str] = (),
        *,
        drain: bool = False,
        http: str | None = None,
        grace: float = 9.0,
    ) -> None:
        self._drain = drain
        self._grace = grace
        self._parts = Parts(settings)
        self._store = Store(self._parts.database("maintenance"))
        self._roster = Roster(settings, load, self._parts, self._store, only)
        self._stopping = self._parts.stopping
        self._signals: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._listener = self._parts.listener(self._wake)
        self._waiting = False
        self._busy = False
        self._last_claims = (time.monotonic(), 0)
        self._threads: list[threading.Thread] = []
        self._http = HttpServer(http, self._parts.metrics.registry, self._healthy, self._ready) if http else None

    def run(self) -> None:
        """Serve until told to stop.

        Raises:
            RelayError: it could not start.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        if not sys.stdin.isatty():
            # A terminal that goes away sends it, too.
            signal.signal(signal.SIGHUP, lambda *_: self._roster.reload())
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
        database = self._parts.database("start")
        backoff = Backoff(0.2, 5.0)
        while True:
            try:
                check_version(database)
                break
            except DatabaseUnavailable as error:
                if backoff.failures == 0:
                    log.warning("waiting for the database", reason=str(error))
                time.sleep(backoff.next())
        database.close()
        self._waiting = False

    def _start_threads(self) -> None:
        log.info("relay started", worker=self._parts.worker, sinks=self._roster.names)
        self._thread("heartbeat", self._parts.heartbeat(self._roster.shortest_lease).run)
        maintenance = self._parts.maintenance(self._roster, self._store, wake=self._wake, is_idle=self._is_idle)
        self._maintenance_thread = self._thread("maintenance", maintenance.run)
        if self._listener:
            self._thread("listener", self._listener.run)
        if self._http:
            self._thread("backlog", self._parts.backlog().run)

    def _watch(self) -> None:
        """Wait for a signal, or for the queue to be empty."""
        database = self._parts.database("drain")
        drain = self._parts.drain(database, self._roster.names)
        while not self._signalled(0.1):
            idle = self._roster.began and all(poll.idle for poll in self._roster.polls)
            if self._drain and idle and drain.is_done():
                break
        database.close()

    def _finish(self) -> None:
        held = sum(len(lease.claim.messages) for lease in self._parts.leases.held())
        log.info("draining", messages=held)
        self._stopping.stop()
        self._wake()
        deadline = time.monotonic() + self._grace
        while self._roster.alive():
            if time.monotonic() > deadline or self._signalled(0.02):
                self._give_back()
                break
        self._stopping.stop_at_once()
        self._maintenance_thread.join(2.0)
        log.info("relay stopped", delivered=self._parts.metrics.delivered())

    def _give_back(self) -> None:
        """Release what is still being sent, so that another relay takes it now and not after the lease."""
        self._stopping.stop_at_once()
        database = self._parts.database("stop", 2.0)
        for lease in self._parts.leases.held():
            claim = lease.claim
            lease.lose()
            claims = self._parts.claims_of(claim.sink, database)
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

    def _thread(self, name: str, run: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=run_guarded, args=(name, run, self._stopping), name=name, daemon=True)
        thread.start()
        self._threads.append(thread)
        return thread

    def _wake(self) -> None:
        for poll in self._roster.polls:
            poll.wake()

    def _is_idle(self) -> bool:
        now, claims = time.monotonic(), sum(poll.engine.claimed for poll in self._roster.polls)
        then, before = self._last_claims
        if now - then >= 1.0:
            self._busy = (claims - before) / (now - then) > BUSY_CLAIMS_PER_S
            self._last_claims = (now, claims)
        return not self._busy and self._listener is not None and self._listener.hears

    def _healthy(self) -> bool:
        return all(thread.is_alive() for thread in self._threads) and self._roster.healthy()

    def _ready(self) -> bool:
        return self._roster.began and all(poll.engine.trouble is None for poll in self._roster.polls)
