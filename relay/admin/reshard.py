"""Another number of shards for a sink, while writers go on and order is kept.

1. `begin`: nothing of the sink is claimed any more, and the trigger is compiled for the new number;
2. `wait`: until every transaction is over that may still use the old number, or claim (whoever held the lock of a
   writer at that moment; all others take it later, and see the new number), and until the live claims have ended;
3. `move`: through the table, page by page, whatever is in a wrong shard goes to its own;
4. `finish`: the sink is claimed again, but only if a look at the whole table at once finds nothing in a wrong shard.
   Else somebody has rewritten the table meanwhile, and `move` follows again.

Interrupted at any point, the sink stays as it is, unclaimed, until the same is run again, from the beginning.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from relay.database.connection import Database
from relay.database.identities import set_missing
from relay.database.locks import Say, with_patience
from relay.errors import RelayError
from relay.process.store import Store
from relay.statements import statement

PAGES = 500
MESSAGES = 5000
"""So many at once."""
LOOK_S = 0.1
SAY_S = 5.0
TABLES = {"relay.outbox": "admin/reshard/reshard_messages", "relay.dead": "admin/reshard/reshard_dead"}


def look(database: Database, sink: str) -> tuple[int, int] | None:
    """How many shards the sink has, and how many messages, dead ones too; None where there is no such sink."""
    shards = {name: shards for name, shards, *_ in database.query(statement("admin/apply/configured_sinks"))}
    if sink not in shards:
        return None
    live, dead = database.query(statement("admin/apply/sink_messages"), {"sink": sink})[0]
    return shards[sink], live + dead


def begin(database: Database, sink: str, shards: int, *, say: Say) -> int | None:
    """Stop claiming and count by the new number; return the old one, None where there is no such sink.

    Args:
        shards: 0: without order.
        say: told what it waits for.
    """

    set_missing(database)

    def work() -> int | None:
        with database.transaction() as conn:
            conn.execute(statement("admin/apply/begin_apply"))
            row = conn.execute(statement("admin/reshard/begin_reshard"), {"sink": sink, "shards": shards}).fetchone()
        return None if row is None else int(row[0])

    return with_patience(work, database, say)


def wait(database: Database, sink: str, *, say: Say) -> None:
    """Wait for everybody who may not know the new number yet, and for the sink's claims."""
    waiting = _busy(database, sink)
    pause = _Pause(say)
    while waiting:
        processes = ", ".join("a prepared transaction" if pid is None else f"process {pid}" for pid in waiting.values())
        pause(f"waiting for transactions that have written or claimed messages: {processes}")
        there = _busy(database, sink)
        waiting = {transaction: pid for transaction, pid in waiting.items() if transaction in there}
    store = Store(database)
    while True:
        while store.reap():
            pass
        claims, seconds = database.query(statement("admin/reshard/sink_claims"), {"sink": sink})[0]
        if claims == 0:
            return
        pause(f"waiting for {claims} claims that are being sent; should their relay be gone: {max(seconds, 0):.0f} s")


def _busy(database: Database, sink: str) -> dict[str, int | None]:
    """Transactions that may not know the new number: who writes, who has keys to let go, who has shards to claim."""
    tables = {"tables": ["relay.outbox", "relay.claims", "relay.stuck_keys"]}
    claiming = database.query(statement("admin/reshard/shard_claimers"), {"sink": sink})
    return dict([*database.query(statement("claims/writers"), tables), *claiming])


def pages(database: Database) -> int:
    """How many pages there are to go through now."""
    return sum(_pages(database, table) for table in TABLES)


def move(database: Database, sink: str) -> Iterator[tuple[int, int]]:
    """Move messages to their shards; yields how many pages were gone through and how many messages moved."""
    for table, change in TABLES.items():
        for first in range(0, _pages(database, table), PAGES):
            where = {"sink": sink, "first": f"({first},0)", "past": f"({first + PAGES},0)"}
            yield PAGES, database.run(statement(change), where)
    # Where order ends.
    while database.run(statement("admin/reshard/reshard_waiting"), {"sink": sink, "messages": MESSAGES}):
        yield 0, 0


def finish(database: Database, sink: str, shards: int) -> bool:
    """Claim again, if every message is in its shard; False: `move` has to go through the table again.

    Raises:
        RelayError: somebody else is moving the sink's messages to another number of shards.
    """
    ended, misplaced = database.query(statement("admin/reshard/end_reshard"), {"sink": sink, "shards": shards})[0]
    if not ended and not misplaced:
        raise RelayError(f'sink "{sink}" is being resharded by somebody else, or was: see relay status')
    return bool(ended)


def _pages(database: Database, table: str) -> int:
    return int(database.query(statement("admin/reshard/pages"), {"table": table})[0][0])


class _Pause:
    """Waits a little, and says now and then what for."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._say_at = time.monotonic() + 1.0

    def __call__(self, reason: str) -> None:
        if time.monotonic() >= self._say_at:
            self._say(reason)
            self._say_at = time.monotonic() + SAY_S
        time.sleep(LOOK_S)
