"""The thread that keeps leases alive, on a connection of its own, however long a send takes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable

import structlog

from relay.errors import RelayError
from relay.process.leases import Lease, Leases
from relay.process.stopping import Stopping
from relay.process.store import Store

log = structlog.get_logger("relay")


class Heartbeat:
    """Renews what is in `leases` every third of a lease.

    Args:
        shortest: answers the shortest lease of any sink now, in seconds.
    """

    def __init__(self, store: Store, leases: Leases, shortest: Callable[[], float], stopping: Stopping) -> None:
        self._store = store
        self._leases = leases
        self._shortest = shortest
        self._stopping = stopping
        self._failing = False

    def run(self) -> None:
        # Graceful stop or not: what is still being sent still needs its lease.
        while not self._stopping.wait_at_once(self._shortest() / (6 if self._failing else 3)):
            self.beat()
        self._store.database.close()

    def beat(self) -> None:
        """Renew every lease that this process holds."""
        by_length: defaultdict[float, list[Lease]] = defaultdict(list)
        for lease in self._leases.held():
            by_length[lease.seconds].append(lease)
        for seconds, leases in by_length.items():
            self._renew(seconds, leases)

    def _renew(self, seconds: float, leases: list[Lease]) -> None:
        asked_at = time.monotonic()
        try:
            ours = self._store.extend_claims([lease.claim.token for lease in leases], seconds)
        except RelayError as error:
            if not self._failing:
                log.warning("heartbeat failed", claims=len(leases), reason=str(error))
            self._failing = True
            return
        self._failing = False
        for lease in leases:
            renewed = ours.get(lease.claim.token)
            if renewed is None:
                # Settled a moment ago, or taken away: nothing of it may be sent any more.
                lease.lose()
            elif renewed:
                lease.renewed(asked_at)
