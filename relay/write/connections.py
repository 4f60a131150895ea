"""Runs statements on whatever connection an application has, in the transaction that it has open there.

What it was given is found out from the names of its class and the classes above, so that nothing is imported that the
application does not use itself. Each driver is one function: it refuses a connection that would commit at once, runs
the calls in order, and answers the rows of each. For an asynchronous connection the answer is awaitable.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Coroutine, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

from relay.errors import NoTransaction, UsageError

Rows = list[tuple[Any, ...]]


class Call(NamedTuple):
    """One statement to run."""

    sql: str
    """With parameters as psycopg writes them: %(name)s."""
    params: dict[str, Any]
    answers: bool
    """Whether rows come back."""


Driver: TypeAlias = Callable[[Any, Sequence[Call], bool], list[Rows] | Coroutine[Any, Any, list[Rows]]]
"""Takes a connection, the calls, and whether a transaction is required."""


def run(conn: Any, calls: Sequence[Call], *, require_transaction: bool) -> list[Rows] | Coroutine[Any, Any, list[Rows]]:
    """Run the calls in order; answer the rows of each.

    Args:
        conn: a connection (or what stands for one) of psycopg, SQLAlchemy, Django, asyncpg or psycopg2.
        require_transaction: refuse a connection that would commit each statement at once.

    Raises:
        NoTransaction: it would; an awaitable answer raises it when it is awaited.
        UsageError: it is nothing that can be written through.
    """
    return _driver(conn)(conn, calls, require_transaction)


def spoil(conn: Any) -> None:
    """Make sure that the transaction of an asynchronous connection is not committed, without waiting for anything."""
    names = {(cls.__module__.partition(".")[0], cls.__name__) for cls in type(conn).__mro__}
    if ("psycopg", "BaseCursor") in names:
        spoil(conn.connection)
    elif ("psycopg", "AsyncConnection") in names:
        conn.pgconn.finish()
    elif names & {("asyncpg", "Connection"), ("asyncpg", "PoolConnectionProxy")}:
        conn.terminate()
    elif ("sqlalchemy", "AsyncConnection") in names:
        _refuse_commit(conn.sync_connection, "commit")
    elif ("sqlalchemy", "async_scoped_session") in names:
        spoil(conn())
    elif ("sqlalchemy", "AsyncSession") in names:
        _refuse_commit(conn.sync_session, "before_commit")


def _refuse_commit(target: Any, event: str) -> None:
    def refuse(_: Any) -> None:
        raise UsageError("a message was not written: `await` is missing before publish or enqueue")

    sys.modules["sqlalchemy.event"].listen(target, event, refuse)


def _driver(conn: Any) -> Driver:
    for cls in type(conn).__mro__:
        driver = _DRIVERS.get((cls.__module__.partition(".")[0], cls.__name__))
        if driver is not None:
            return driver
    given = type(conn)
    raise UsageError(
        "expected a connection of psycopg, SQLAlchemy, Django, asyncpg or psycopg2, or the alias of one of Django's, "
        f"got {given.__module__}.{given.__qualname__}"
    )


def _demand(in_transaction: bool, how: str) -> None:
    if not in_transaction:
        raise NoTransaction(
            f"no transaction is open, so the message would be committed at once and alone: begin one first ({how}), "
            "or pass require_transaction=False"
        )


def _execute(cursor: Any, calls: Sequence[Call]) -> list[Rows]:
    answers: list[Rows] = []
    for call in calls:
        cursor.execute(call.sql, call.params)
        answers.append(cursor.fetchall() if call.answers else [])
    return answers


def _would_begin(conn: Any) -> bool:
    """Whether psycopg (either) is in a transaction or begins one by itself."""
    idle = 0  # libpq's PQTRANS_IDLE
    return not conn.autocommit or conn.info.transaction_status != idle


def _psycopg(conn: Any, calls: Sequence[Call], required: bool) -> list[Rows]:
    from psycopg import Cursor
    from psycopg.rows import tuple_row

    _demand(_would_begin(conn) or not required, "with conn.transaction(): …")
    # Not conn.cursor(): an application may have chosen another row or cursor factory.
    with Cursor(conn, row_factory=tuple_row) as cursor:
        return _execute(cursor, calls)


async def _psycopg_async(conn: Any, calls: Sequence[Call], required: bool) -> list[Rows]:
    from psycopg import AsyncCursor
    from psycopg.rows import tuple_row

    _demand(_would_begin(conn) or not required, "async with conn.transaction(): …")
    answers: list[Rows] = []
    async with AsyncCursor(conn, row_factory=tuple_row) as cursor:
        for call in calls:
            await cursor.execute(call.sql, call.params)
            answers.append(await cursor.fetchall() if call.answers else [])
    return answers


def _psycopg2(conn: Any, calls: Sequence[Call], required: bool) -> list[Rows]:
    from psycopg2.extensions import cursor as Cursor

    _demand(_would_begin(conn) or not required, "with conn: …, and conn.autocommit = False")
    with conn.cursor(cursor_factory=Cursor) as cursor:
        return _execute(cursor, calls)


def _django(conn: Any, calls: Sequence[Call], required: bool) -> list[Rows]:
    if conn.vendor != "postgresql":
        raise UsageError(f"expected a PostgreSQL database, got {conn.vendor} (Django alias {conn.alias!r})")
    open_or_begun = conn.in_atomic_block or not conn.get_autocommit()
    _demand(open_or_begun or not required, f"with transaction.atomic(using={conn.alias!r}): …")
    with conn.cursor() as cursor:
        return _execute(cursor, calls)


def _django_alias(alias: str, calls: Sequence[Call], required: bool) -> list[Rows]:
    if "django.db" not in sys.modules:
        raise UsageError("expected a connection, got text; only Django's connections have a name")
    from django.db import connections

    return _django(connections[alias], calls, required)


def _sqlalchemy(conn: Any, calls: Sequence[Call], required: bool) -> list[Rows]:
    dialect = conn.dialect
    if dialect.name != "postgresql" or dialect.paramstyle not in ("pyformat", "numeric_dollar"):
        raise UsageError(
            f"expected SQLAlchemy on PostgreSQL with psycopg, psycopg2 or asyncpg, got {dialect.name}+{dialect.driver}"
        )
    commits_at_once = conn.connection.dbapi_connection.autocommit
    _demand(not commits_at_once or not required, "on a connection whose isolation level is not AUTOCOMMIT")
    answers: list[Rows] = []
    for call in calls:
        # Past SQLAlchemy's own types: the driver gets what it would get without SQLAlchemy.
        numbered = dialect.paramstyle == "numeric_dollar"
        result = conn.exec_driver_sql(*_numbered(call)) if numbered else conn.exec_driver_sql(call.sql, call.params)
        answers.append([tuple(row) for row in result] if call.answers else [])
    return answers


def _sqlalchemy_session(session: Any, calls: Sequence[Call], required: bool) -> list[Rows]:
    return _sqlalchemy(session.connection(), calls, required)


async def _sqlalchemy_async(conn: Any, calls: Sequence[Call], required: bool) -> list[Rows]:
    answers: list[Rows] = await conn.run_sync(_sqlalchemy, calls, required)
    return answers


async def _sqlalchemy_async_session(session: Any, calls: Sequence[Call], required: bool) -> list[Rows]:
    answers: list[Rows] = await session.run_sync(_sqlalchemy_session, calls, required)
    return answers


async def _asyncpg(conn: Any, calls: Sequence[Call], required: bool) -> list[Rows]:
    _demand(conn.is_in_transaction() or not required, "async with conn.transaction(): …")
    answers: list[Rows] = []
    for call in calls:
        sql, params = _numbered(call)
        answers.append([tuple(row) for row in await conn.fetch(sql, *params)])
    return answers


def _numbered(call: Call) -> tuple[str, tuple[Any, ...]]:
    """The call as PostgreSQL itself writes it, with $1 for %(name)s."""
    sql, names = _with_numbers(call.sql)
    return sql, tuple(call.params[name] for name in names)


@cache
def _with_numbers(sql: str) -> tuple[str, tuple[str, ...]]:
    names = tuple(dict.fromkeys(re.findall(r"%\((\w+)\)s", sql)))
    return re.sub(r"%\((\w+)\)s", lambda match: f"${names.index(match[1]) + 1}", sql), names


def _through(attribute: str) -> Driver:
    """For an object whose connection is one of its attributes, such as a cursor."""

    def driver(holder: Any, calls: Sequence[Call], required: bool) -> list[Rows] | Coroutine[Any, Any, list[Rows]]:
        return run(getattr(holder, attribute), calls, require_transaction=required)

    return driver


_DRIVERS: Final[dict[tuple[str, str], Driver]] = {
    ("psycopg", "Connection"): _psycopg,
    ("psycopg", "AsyncConnection"): _psycopg_async,
    ("psycopg", "BaseCursor"): _through("connection"),
    ("psycopg2", "connection"): _psycopg2,
    ("psycopg2", "cursor"): _through("connection"),
    ("sqlalchemy", "Connection"): _sqlalchemy,
    ("sqlalchemy", "Session"): _sqlalchemy_session,
    ("sqlalchemy", "scoped_session"): _sqlalchemy_session,
    ("sqlalchemy", "AsyncConnection"): _sqlalchemy_async,
    ("sqlalchemy", "AsyncSession"): _sqlalchemy_async_session,
    ("sqlalchemy", "async_scoped_session"): _sqlalchemy_async_session,
    ("django", "BaseDatabaseWrapper"): _django,
    ("django", "ConnectionProxy"): _django,
    ("django", "CursorWrapper"): _through("db"),
    ("builtins", "str"): _django_alias,
    ("asyncpg", "Connection"): _asyncpg,
    ("asyncpg", "PoolConnectionProxy"): _asyncpg,
}
