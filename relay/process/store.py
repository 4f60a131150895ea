"""What the relay asks of the database beside claiming and settling (`rows`, `shards`), in short transactions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from psycopg.types.json import Jsonb

from relay.claims.parking import KnownDestination, Unavailable, count_waiting
from relay.claims.places import lock_rows
from relay.database.connection import Database
from relay.statements import statement

DIED = "the relay that held it was gone for longer than the lease"


class KnownSink(NamedTuple):
    """A sink as the database has it."""

    shards: int
    """0: unordered."""
    paused: str | None
    """Why nothing is claimed for it; None: it runs."""


class Said(NamedTuple):
    """What a relay says of one of its sinks."""

    destination: str | None
    """Where it delivers, or would; None where that cannot be told."""
    waits: str | None
    """Why it does not serve it now; None where it does."""


class Rival(NamedTuple):
    """What another relay says of a sink."""

    sink: str
    worker: str
    destination: str
    since: float
    """When it first said so, in seconds since 1970."""
    waits: str | None


class Presence(NamedTuple):
    """What a relay says of itself."""

    worker: str
    host: str
    version: str
    idle_for: float | None
    """Seconds for which writers should notify it; None: not at all."""
    circuits: Mapping[str, str]
    """Sinks that are unavailable, with the reason."""
    sinks: Mapping[str, Said]


class Store:
    """The relay's statements over one connection.

    Raises:
        DatabaseUnavailable: from every method: try again later.
        RelayError: from every method: a person has to do something.
    """

    def __init__(self, database: Database) -> None:
        self.database = database

    def extend_claims(self, tokens: Sequence[UUID], lease: float) -> Mapping[UUID, bool]:
        """Renew leases; return the tokens that are still there, and whether each was renewed: what is locked is not."""
        return dict(self.database.query(statement("process/extend_claims"), {"tokens": list(tokens), "lease": lease}))

    def reap(self) -> tuple[str, str, int] | None:
        """Free the messages of one expired claim; return its sink, its worker and how many, or None."""
        with self.database.transaction() as conn:
            row = conn.execute(statement("process/lock_expired_claim"), binary=True).fetchone()
            if row is None:
                return None
            token, sink, shards, counts, worker, ids = row
            ordered = shards is not None
            spread = zip(shards or [0], counts or [len(ids)], strict=True)
            shard_of = [shard for shard, count in spread for _ in range(count)]
            where = {"token": token, "sink": sink, "mark": None if ordered else token}
            where["places"] = lock_rows(conn, where, ids, shard_of)
            conn.execute(statement("process/reap_rows"), where | {"uncounted": int(ordered), "reason": DIED})
            conn.execute(statement("settle/end_claim"), where)
        return sink, worker, len(ids)

    def promote(self, messages: int) -> int:
        """Make up to so many scheduled messages ready whose time has come; return how many."""
        return self.database.run(statement("process/promote"), {"messages": messages})

    def next_due(self) -> tuple[float | None, list[KnownDestination]]:
        """Seconds until something is due that maintenance lets go, None where nothing is; unavailable destinations."""
        seconds, destinations = self.database.query(statement("process/next_due"))[0]
        return seconds, [KnownDestination(*row) for row in json.loads(destinations or "[]")]

    def say_alive(self, presence: Presence) -> dict[str, float]:
        """Show this relay to `status`, to other relays and, while it is idle, to writers; return since when each of its
        sinks is said to be delivered where it is, in seconds since 1970."""
        conn = self.database.connection()
        said = {
            **presence._asdict(),
            "circuits": Jsonb(dict(presence.circuits)),
            "sinks": Jsonb({name: said._asdict() for name, said in presence.sinks.items()}),
            # Behind a pooler the session is not ours alone, and does not end with us.
            "backend_pid": None if self.database.pooled else conn.info.backend_pid,
        }
        return dict(self.database.query(statement("process/say_alive"), said))

    def rivals(self, worker: str) -> list[Rival]:
        """What the other relays say of sinks of which they know where they deliver."""
        return [Rival(*row) for row in self.database.query(statement("process/rivals"), {"worker": worker})]

    def say_goodbye(self, worker: str) -> None:
        self.database.run(statement("process/say_goodbye"), {"worker": worker})

    def unavailable(self) -> list[Unavailable]:
        """Destinations that messages wait for, up to a number of both."""
        return count_waiting(self.database)

    def is_drained(self, sinks: Sequence[str]) -> bool:
        """True where nothing of these sinks is due or claimed."""
        return bool(self.database.query(statement("process/is_drained"), {"sinks": list(sinks)})[0][0])

    def known_sinks(self) -> dict[str, KnownSink]:
        """Every applied sink, by name."""
        return {
            name: KnownSink(shards, paused)
            for name, shards, paused in self.database.query(statement("process/known_sinks"))
        }
