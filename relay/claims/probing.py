"""Unavailable destinations, as one relay looks after them: probes, what its workers know, figures, and log lines."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import structlog

from relay.claims.destinations import Destinations
from relay.claims.parking import KnownDestination, Unavailable, count_waiting, let_due_destinations_go
from relay.database.connection import Database
from relay.statements import statement

log = structlog.get_logger("relay")

PROBES = 50
"""Destinations that are probed in one transaction."""
COUNT_EVERY_S = 10.0
ADOPT_EVERY_S = 30.0
"""So often it is looked for parked messages that nothing would let go."""
SAY_EVERY_S = 60.0


class DestinationWatch:
    """What `Maintenance` does about destinations.

    Args:
        destinations: by sink, of those that this relay serves.
        show: called now and then with those that are unavailable.
    """

    def __init__(
        self,
        database: Database,
        destinations: Mapping[str, Destinations],
        show: Callable[[Sequence[Unavailable]], None],
    ) -> None:
        self._database = database
        self._destinations = destinations
        self._show = show
        self._probes = False
        self._count_at = 0.0
        self._adopt_at = 0.0
        self._said: dict[tuple[str, str], float] = {}

    def let_go(self) -> int:
        """Let probes go whose time has come; returns how many messages."""
        if time.monotonic() >= self._adopt_at:
            self._adopt_at = time.monotonic() + ADOPT_EVERY_S
            self._probes = self._database.run(statement("destinations/adopt")) > 0 or self._probes
        return let_due_destinations_go(self._database, PROBES) if self._probes else 0

    def note(self, known: Sequence[KnownDestination]) -> None:
        """Take over what the database says."""
        reasons: defaultdict[str, dict[str, str]] = defaultdict(dict)
        by_circuit: defaultdict[str, set[str]] = defaultdict(set)
        for one in known:
            if one.failures:
                reasons[one.sink][one.name] = one.reason
            if one.by_circuit:
                by_circuit[one.sink].add(one.name)
        for sink, destinations in list(self._destinations.items()):
            destinations.refresh(reasons[sink], frozenset(by_circuit[sink]))
        self._probes = any(not one.by_circuit for one in known)
        if known or self._said:
            self._report()

    def _report(self) -> None:
        now = time.monotonic()
        if now < self._count_at:
            return
        self._count_at = now + COUNT_EVERY_S
        unavailable = count_waiting(self._database)
        self._show(unavailable)
        there = {(one.sink, one.name) for one in unavailable}
        self._said = {name: at for name, at in self._said.items() if name in there}
        for one in unavailable:
            # It was said when it was found; from here on also what waits, now and then.
            at = self._said.setdefault((one.sink, one.name), now - SAY_EVERY_S + COUNT_EVERY_S)
            if one.sink in self._destinations and now - at >= SAY_EVERY_S:
                self._said[one.sink, one.name] = now
                log.warning(
                    "messages wait for an unavailable destination",
                    sink=one.sink,
                    name=one.name,
                    waiting=one.waiting,
                    seconds=round(one.seconds),
                    reason=one.reason,
                )
