"""Messages that wait for an unavailable destination: parked once, let go once, whatever the number of probes.

Whoever parks messages writes the destination's row afterwards, in the same transaction; whoever lets them go locks that
row first, and looks for what waits by a later statement. So nothing waits without a row in relay.destinations.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import psycopg

from relay.claims.claim import Finding
from relay.claims.places import Places
from relay.claims.stuck import let_go
from relay.database.connection import Database
from relay.statements import statement

FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 10.0
"""A destination that is available again is noticed within this time."""
FEWEST_LET_GO = 10
MOST_LET_GO = 1000
"""Messages at once, after a probe was delivered."""
LOWEST_HASH = -(2**63)


class KnownDestination(NamedTuple):
    """A destination as the database has it."""

    sink: str
    name: str
    reason: str
    failures: int
    """0: it works again."""
    by_circuit: bool
    """Whether the circuit of its sink probes it, and nothing is parked."""


class Unavailable(NamedTuple):
    """A destination that does not take messages."""

    sink: str
    name: str
    reason: str
    seconds: float
    """Since when."""
    waiting: int
    """Messages that wait for it, as far as they are counted."""


def write_destinations(
    conn: psycopg.Connection[Any],
    where: Mapping[str, Any],
    found: Mapping[str, Finding],
    lock: Callable[[list[int]], Places],
) -> None:
    """Park what waits for destinations, and let messages go for those that work again, inside a settle's transaction.

    Args:
        lock: holds messages, given their ids, where they are.
    """
    # In one order everywhere: two settles must not wait for each other.
    for name, finding in sorted(found.items()):
        at = {"sink": where["sink"], "destination": name}
        if finding.ids:
            parked = {"reason": finding.reason, "places": lock(finding.ids)}
            conn.execute(statement("destinations/park"), {**where, **at, **parked})
        if finding.reason:
            _hold(conn, at, finding)
        if finding.works:
            _works(conn, at, finding.delivered)


def let_due_destinations_go(database: Database, destinations: int) -> int:
    """Let a probe go for each destination whose time has come, up to so many; return how many messages."""
    let_go_now = 0
    with database.transaction() as conn:
        due = conn.execute(statement("destinations/lock_due"), {"destinations": destinations}).fetchall()
        for sink, name, failures in due:
            at = {"sink": sink, "destination": name}
            count = _let_go(conn, at, 1 if failures else FEWEST_LET_GO, probe=bool(failures))
            conn.execute(statement("destinations/move"), {**at, "works": False, "let_go": count})
            let_go_now += count
    return let_go_now


def count_waiting(database: Database, destinations: int = 100, messages: int = 100_000) -> list[Unavailable]:
    """Unavailable destinations, and how many messages wait for each, both up to a limit."""
    limits = {"destinations": destinations, "most": messages}
    return [Unavailable(*row) for row in database.query(statement("destinations/counts"), limits)]


def _hold(conn: psycopg.Connection[Any], at: Mapping[str, Any], finding: Finding) -> None:
    facts = {
        "reason": finding.reason,
        "refused": finding.refused,
        "delivered": finding.delivered > 0,
        "probe": finding.probe,
        "parked": finding.parked,
    }
    conn.execute(statement("destinations/hold"), {**at, **facts, "base": FIRST_WAIT_S, "max": LONGEST_WAIT_S})


def _works(conn: psycopg.Connection[Any], at: Mapping[str, Any], delivered: int) -> None:
    if conn.execute(statement("destinations/lock"), at).fetchone() is None:
        return
    count = _let_go(conn, at, min(max(2 * delivered, FEWEST_LET_GO), MOST_LET_GO), probe=False)
    conn.execute(statement("destinations/move"), {**at, "works": True, "let_go": count})


def _let_go(conn: psycopg.Connection[Any], at: Mapping[str, Any], messages: int, *, probe: bool) -> int:
    """Let up to so many messages of a locked destination go: parked ones, then the first of each waiting key."""
    wanted = {**at, "probe": probe, "messages": messages}
    places = Places(row[0] for row in conn.execute(statement("destinations/lock_parked"), wanted, binary=True))
    if places:
        conn.execute(statement("destinations/unpark"), {"places": places})
    left = messages - len(places)
    if not left:
        return len(places)
    # A probe is of any key, so that one for which the destination is never available does not stand for all.
    starts = [random.getrandbits(64) + LOWEST_HASH, LOWEST_HASH] if probe else [LOWEST_HASH]
    keys: list[tuple[Any, ...]] = []
    for start in starts:
        keys = conn.execute(statement("destinations/lock_keys"), {**at, "from": start, "keys": left}).fetchall()
        if keys:
            break
    let_go(conn, keys, 1, at["destination"])
    return len(places) + len(keys)
