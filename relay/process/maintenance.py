"""What any relay does for all: promote what became due, reap what its owner lost, say that it is there.

Every relay does it for every sink; rows that another one is busy with are skipped, so nobody has to be elected.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence

import structlog

from relay.backoff import Backoff
from relay.claims.stuck import let_due_keys_go
from relay.config.settings import SinkSettings
from relay.database.identities import Identities
from relay.errors import DatabaseUnavailable, RelayError
from relay.process.applied import check_sinks
from relay.process.late_routes import LateRoutes
from relay.process.stopping import Stopping
from relay.process.store import Store
from relay.telemetry.metrics import Metrics

log = structlog.get_logger("relay")

PROMOTE_MESSAGES = 1000
LET_GO_KEYS = 500
LONGEST_WAIT_S = 1.0
PRESENCE_S = 10.0
IDLE_FOR_S = 30.0
"""For so long writers notify after a relay last said that it is idle."""


class Maintenance:
    """One thread a process.

    Args:
        sinks: those that this relay serves.
        wake: called when messages became ready.
        is_idle: whether this relay waits for work and can be notified.
        circuits: sinks that are unwell, with the reason.
    """

    def __init__(
        self,
        store: Store,
        worker: str,
        *,
        sinks: Sequence[SinkSettings],
        wake: Callable[[], None],
        is_idle: Callable[[], bool],
        circuits: Callable[[], Mapping[str, str]],
        metrics: Metrics,
        stopping: Stopping,
    ) -> None:
        self._store = store
        self._identities = Identities(store.database)
        self._late_routes = LateRoutes(store.database)
        self._worker = worker
        self._sinks = sinks
        self._wake = wake
        self._is_idle = is_idle
        self._circuits = circuits
        self._metrics = metrics
        self._stopping = stopping
        self._said: tuple[bool, Mapping[str, str]] | None = None
        self._said_at = 0.0
        self._difference: str | None = None

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
        let_go = let_due_keys_go(self._store.database, LET_GO_KEYS)
        if self._reap() + self._promote() + let_go + self._late_routes.route():
            self._wake()
        due = self._store.next_due()
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

    def _say_alive(self) -> None:
        says = (self._is_idle(), dict(self._circuits()))
        if says == self._said and time.monotonic() - self._said_at < PRESENCE_S:
            return
        idle, circuits = says
        self._store.say_alive(self._worker, idle_for=IDLE_FOR_S if idle else None, circuits=circuits)
        self._check_sinks()
        self._said, self._said_at = says, time.monotonic()
        if idle:
            # Whatever committed before writers could see that we wait was not announced.
            self._wake()

    def _check_sinks(self) -> None:
        """Say what was changed under our feet, as nothing else would: a claim of the wrong kind just finds nothing."""
        try:
            check_sinks(self._store, self._sinks)
        except DatabaseUnavailable:
            raise
        except RelayError as error:
            if str(error) != self._difference:
                log.warning("sink differs from the database", reason=str(error))
            self._difference = str(error)
        else:
            self._difference = None
