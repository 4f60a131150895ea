"""The configuration file's sinks and routes, written into the database.

Only the difference is written, so that applying the same file again changes nothing and wakes nobody. Then messages
that had no route are routed, if they have one by now.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, LiteralString

from psycopg import Connection

from relay.admin.difference import Difference, difference
from relay.config.settings import UNROUTED, Settings
from relay.database.connection import Database
from relay.database.identities import set_missing
from relay.database.locks import Say, with_patience
from relay.errors import RelayError
from relay.process.late_routes import route_again
from relay.statements import statement

BATCH_MESSAGES = 1000
SEARCH_S = 5.0
"""How long a batch may look for messages that an open transaction holds up: relays route those later."""

Query = Callable[[LiteralString, dict[str, Any]], list[tuple[Any, ...]]]


def apply(
    database: Database,
    settings: Settings,
    *,
    say: Say = lambda text: None,
    may_remove: Collection[tuple[str, ...]] | None = None,
) -> Difference:
    """Make the database's sinks and routes those of the file, in one transaction; return what that changed.

    Args:
        may_remove: of `Difference.removed` what may go; None: anything.
        say: told what it waits for.

    Raises:
        UsageError: the file has a route twice, or no sink at all.
        RelayError: messages would be left without their sink or in a wrong shard; nothing was changed.
    """
    changes = difference(database.query, settings)
    if not changes:
        return changes
    # Asked without locks first: to refuse is the likely answer, and counting may take a while.
    refuse(database, changes)
    return with_patience(lambda: _apply(database, settings, may_remove), database, say)


def refuse(database: Database, changes: Difference) -> None:
    """Raise where `apply` would.

    Raises:
        RelayError: says which sink has how many messages, and what to do.
    """
    _refuse(database.query, changes)


def reroute(database: Database) -> Iterator[int]:
    """Route messages that had no route and have one by now. Yields how many, a batch at a time, each committed."""
    set_missing(database)
    after: int | None = 0
    while after is not None:
        rows = database.query(statement("admin/apply/unrouted_ready"), {"after": after, "messages": BATCH_MESSAGES})
        yield route_again(database, [(place, deduped) for place, deduped, _ in rows], seconds=SEARCH_S)
        after = rows[-1][2] if rows else None
    scheduled = database.query(statement("admin/apply/unrouted_scheduled"))
    for start in range(0, len(scheduled), BATCH_MESSAGES):
        yield route_again(database, scheduled[start : start + BATCH_MESSAGES], seconds=SEARCH_S)


def unrouted(database: Database) -> int:
    """How many messages have no route."""
    return int(database.query(statement("admin/apply/sink_messages"), {"sink": UNROUTED})[0][0])


def _apply(database: Database, settings: Settings, may_remove: Collection[tuple[str, ...]] | None) -> Difference:
    with database.transaction() as conn:
        conn.execute(statement("admin/apply/begin_apply"))
        conn.execute(statement("admin/apply/lock_configuration"))
        changes = difference(conn.execute, settings)
        if may_remove is not None and not changes.removed <= set(may_remove):
            raise RelayError("sinks or routes were changed meanwhile; nothing was applied: run it again")
        if any(_leaves_messages(change.old, change.new) for change in changes.sinks):
            conn.execute(statement("admin/apply/lock_writers"))
            _refuse(lambda sql, params: conn.execute(sql, params).fetchall(), changes)
        _write(conn, changes)
    return changes


def _leaves_messages(old: Any, new: Any) -> bool:
    return old is not None and (new is None or new.shards != old.shards)


def _refuse(query: Query, changes: Difference) -> None:
    problems = []
    for old, new in changes.sinks:
        if old is None or not _leaves_messages(old, new):
            continue
        live, dead = query(statement("admin/apply/sink_messages"), {"sink": old.name})[0]
        if new is None and (live or dead):
            problems.append(
                f'sink "{old.name}" is not in the file any more, but has {live:,} live and {dead:,} dead messages: '
                "put it back and remove only its routes, wait until it is drained (relay status), and settle what is "
                f"dead (relay dead requeue or discard --sink {old.name})"
            )
        if new is not None and live and not new.shards:
            problems.append(
                f'sink "{old.name}" keeps its order and has {live:,} live messages, but the file lacks: order = "key", '
                f"shards = {old.shards}; add it, or end its order: relay reshard {old.name} 0"
            )
        elif new is not None and live:
            problems.append(
                f'sink "{old.name}" has {live:,} live messages in {old.shards} shards, so it cannot have '
                f"{new.shards} now: put the old number back, or run: relay reshard {old.name} {new.shards}"
            )
    if problems:
        raise RelayError("nothing was applied: " + "; ".join(problems))


def _write(conn: Connection[Any], changes: Difference) -> None:
    """Only statements that change something, as each compiles the routes anew."""
    sinks = [new for _, new in changes.sinks if new]
    routes = [new for _, new in changes.routes if new]
    gone_sinks = [old for old, new in changes.sinks if old and not new]
    gone_routes = [old for old, new in changes.routes if old and not new]
    if sinks:
        conn.execute(statement("admin/apply/write_sinks"), _columns(sinks))
    if gone_routes:
        conn.execute(statement("admin/apply/delete_routes"), _columns(gone_routes))
    if routes:
        conn.execute(statement("admin/apply/write_routes"), _columns(routes))
    if gone_sinks:
        conn.execute(statement("admin/apply/delete_sinks"), _columns(gone_sinks))


def _columns(rows: list[Any]) -> dict[str, list[Any]]:
    return {name: [getattr(row, name) for row in rows] for name in rows[0]._fields}
