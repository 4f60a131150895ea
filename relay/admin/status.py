"""What waits where, as the database has it. Payloads are never read."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import NamedTuple

from relay.claims.parking import Unavailable, count_waiting
from relay.config.settings import UNROUTED
from relay.database.connection import Database
from relay.statements import statement


class SinkStatus(NamedTuple):
    """Messages of one sink."""

    name: str
    due: int
    """Could be claimed now."""
    scheduled: int
    """Wait for anything: `later`, `retrying`, `held` and `keys` together."""
    claimed: int
    dead: int
    oldest_due_seconds: float | None
    """Since when the oldest due message is due; None where none is."""
    paused: str | None
    """Why it is paused; None where it is not."""
    unwell: str | None
    """What a relay said when it opened the circuit; None where it is closed."""
    known: bool
    """False where only messages name it: nobody delivers them."""

    served: bool = True
    """Whether a relay serves it now, which could say so."""
    later: int = 0
    """Wait for their time."""
    retrying: int = 0
    """Wait for their next attempt."""
    held: int = 0
    """Wait for an unavailable destination."""
    keys: int = 0
    """Wait for an earlier message of their key, which failed, is dead, or has an unavailable destination."""
    paused_seconds: float | None = None
    """Since when it is paused; None where it is not."""

    @property
    def circuit(self) -> str:
        if self.unwell is not None:
            return "open"
        return "closed" if self.served else "unknown"

    @property
    def waiting(self) -> bool:
        """Whether something should be delivered now."""
        return self.due > 0 and self.paused is None


@dataclass(frozen=True, slots=True)
class Status:
    """All sinks at one moment."""

    sinks: list[SinkStatus]
    unrouted: int
    """Messages that no route matched."""
    relays: int
    """Relays that run."""
    unavailable: list[Unavailable] = field(default_factory=list)
    """Destinations that take no messages."""
    inventory: list[RelayStatus] = field(default_factory=list)
    """Those relays."""

    def problems(self, *, max_age: float, max_dead: int) -> list[str]:
        """What should wake a person.

        Args:
            max_age: seconds that a due message of a sink that is not paused may wait.
            max_dead: dead messages that are no reason to worry, for each sink.
        """
        found = []
        if self.unrouted:
            found.append(f"messages that no route matches: {self.unrouted:,}; add one, then: relay apply")
        due = sum(sink.due for sink in self.sinks if sink.waiting)
        if due and not self.relays:
            found.append(f"no relay runs; messages that are due: {due:,}; start one: relay run")
        for sink in self.sinks:
            if not sink.known:
                found.append(f'sink "{sink.name}" is not configured, but messages name it')
            if sink.unwell is not None:
                found.append(f'sink "{sink.name}" is unwell: {sink.unwell}')
            if sink.dead > max_dead:
                found.append(f'sink "{sink.name}", dead messages: {sink.dead:,}: relay dead list --sink {sink.name}')
            if sink.waiting and sink.oldest_due_seconds is not None and sink.oldest_due_seconds > max_age:
                found.append(f'sink "{sink.name}" has a message that is due for {sink.oldest_due_seconds:,.0f} seconds')
        for one in self.unavailable:
            found.append(
                f'sink "{one.sink}", destination "{one.name}" is unavailable for {one.seconds:,.0f} seconds,'
                f" messages that wait: {one.waiting:,}: {one.reason}"
            )
        return found


class RelayStatus(NamedTuple):
    """One relay that runs."""

    worker: str
    """Host, process and a random part of this start."""
    host: str | None
    version: str | None
    up_seconds: float
    """Since when it runs."""
    seen_seconds: float
    """When it last said so, before now."""
    sinks: list[str]
    """Those that it serves."""
    waits: dict[str, str]
    """Sinks that it should serve and does not, with the reason."""


class Traffic(NamedTuple):
    """Rows that entered and left the queue since the server's statistics began."""

    written: int
    gone: int
    now: float
    """The database's clock, seconds since 1970."""


def read_status(database: Database) -> Status:
    """Count. Takes a second for a few million waiting messages."""
    rows = [SinkStatus(*row) for row in database.query(statement("admin/status/status"))]
    unrouted = sum(row.due + row.scheduled for row in rows if row.name == UNROUTED)
    relays = [_relay(*row) for row in database.query(statement("admin/status/relays"))]
    sinks = [row for row in rows if row.name != UNROUTED]
    return Status(sinks, unrouted, len(relays), count_waiting(database), relays)


def _relay(
    worker: str, host: str | None, version: str | None, up: float, seen: float, sinks: str | None
) -> RelayStatus:
    said = {name: one["waits"] for name, one in sorted(json.loads(sinks or "{}").items())}
    waits = {name: reason for name, reason in said.items() if reason is not None}
    return RelayStatus(worker, host, version, up, seen, [name for name in said if name not in waits], waits)


def read_traffic(database: Database) -> Traffic:
    """For rates: the difference between two of them."""
    return Traffic(*database.query(statement("admin/status/traffic"))[0])
