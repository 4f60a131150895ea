"""What any relay does for all: promote what became due, reap what its owner lost, say that it is there.

Every relay does it for every sink; rows that another one is busy with are skipped, so nobody has to be elected.
"""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Protocol

import structlog

from relay.backoff import Backoff
from relay.claims.destinations import Destinations
from relay.claims.probing import DestinationWatch
from relay.claims.stuck import let_due_keys_go
from relay.database.identities import Identities
from relay.errors import RelayError
from relay.process.late_routes import LateRoutes
from relay.process.stopping import Stopping
from relay.process.store import Presence, Said, Store
from relay.telemetry.metrics import Metrics

log = structlog.get_logger("relay")

PROMOTE_MESSAGES = 1000
LET_GO_KEYS = 500
LONGEST_WAIT_S = 1.0
PRESENCE_S = 10.0
LOOK_S = 2.0
"""So often it is looked whether other sinks are to be served."""
IDLE_FOR_S = 30.0
"""For so long writers notify after a relay last said that it is idle."""


class Looks(Protocol):
    """What decides which sinks are served (`roster.py`)."""

    def said(self) -> Mapping[str, Said]: ...

    def look(self, register: Callable[[], Mapping[str, float]]) -> None: ...


class Maintenance:
    """One thread a process.

    Args:
        roster: the sinks of this relay.
        wake: called when messages became ready.
        is_idle: whether this relay waits for work and can be notified.
        circuits: sinks that are unwell, with the reason.
        destinations: what is known of those of each sink.
    """

    def __init__(
        self,
        store: Store,
        worker: str,
        *,
        roster: Looks,
        wake: Callable[[], None],
        is_idle: Callable[[], bool],
        circuits: Callable[[], Mapping[str, str]],
        destinations: Mapping[str, Destinations],
        metrics: Metrics,
        stopping: Stopping,
    ) -> None:
        self._store = store
        self._identities = Identities(store.database)
        self._late_routes = LateRoutes(store.database)
        self._worker = worker
        self._roster = roster
        self._wake = wake
        self._is_idle = is_idle
        self._circuits = circuits
        self._metrics = metrics
        self._watch = DestinationWatch(store.database, destinations, metrics.unavailable)
        self._stopping = stopping
        self._said: tuple[bool, Mapping[str, str], Mapping[str, Said], int] | None = None
        self._said_at = 0.0
        self._since: Mapping[str, float] = {}
        self._look_at = 0.0

    def run(self) -> None:
        backoff = Backoff(0.2, 5.0)
        while not self._stopping.is_set():
            try:
                wait = self.tick()
                backoff.reset()
            except RelayError as error:
                if backoff.failures == 0:
                    log.warning("maintenance failed", reason=str(error))
                wait = backoff.next()
            self._stopping.wait(wait)
        try:
            self._store.say_goodbye(self._worker)
        except RelayError as error:
            log.info("could not say goodbye", reason=str(error))
        self._store.database.close()

    def tick(self) -> float:
        """One round; returns seconds until the next."""
        self._identities.keep()
        self._say_alive()
        if time.monotonic() >= self._look_at:
            self._roster.look(self._say_alive)
            self._look_at = time.monotonic() + LOOK_S
        let_go = let_due_keys_go(self._store.database, LET_GO_KEYS) + self._watch.let_go()
        if self._reap() + self._promote() + let_go + self._late_routes.route():
            self._wake()
        due, destinations = self._store.next_due()
        self._watch.note(destinations)
        longest = LONGEST_WAIT_S * random.uniform(0.8, 1.0)
        return longest if due is None else min(max(due, 0.005), longest)

    def _promote(self) -> int:
        promoted = 0
        while not self._stopping.is_set():
            count = self._store.promote(PROMOTE_MESSAGES)
            promoted += count
            if count < PROMOTE_MESSAGES:
                break
            self._wake()
        return promoted

    def _reap(self) -> int:
        freed = 0
        while not self._stopping.is_set() and (reaped := self._store.reap()) is not None:
            sink, worker, messages = reaped
            freed += messages
            self._metrics.reaped(sink, messages)
            log.warning("claim reaped", sink=sink, owner=worker, count=messages)
        return freed

    def _say_alive(self) -> Mapping[str, float]:
        """Say that we are there, where that is due or anything has changed; answers as `Store.say_alive`."""
        says = (self._is_idle(), dict(self._circuits()), self._roster.said(), self._store.database.connections)
        if says != self._said or time.monotonic() - self._said_at >= PRESENCE_S:
            idle, circuits, sinks, _ = says
            host, release, idle_for = socket.gethostname(), version("outbox-relay"), IDLE_FOR_S if idle else None
            presence = Presence(self._worker, host, release, idle_for, circuits, sinks)
            self._since = self._store.say_alive(presence)
            self._said, self._said_at = says, time.monotonic()
            if idle:
                # Whatever committed before writers could see that we wait was not announced.
                self._wake()
        return self._since
