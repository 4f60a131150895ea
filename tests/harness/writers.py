"""Every connection that an application may write through, opened and used in one way.

The synchronous ones run inside coroutines too, where they just block: so one suite serves all.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import psycopg2
import psycopg2.extras
from psycopg.rows import dict_row

Block = AbstractAsyncContextManager[Any]


@dataclass(frozen=True)
class Writer:
    """One connection."""

    conn: Any
    """What `publish` is given."""
    transaction: Callable[[], Block]
    """A block that commits, or rolls back where it raises. Inside another one: a savepoint."""
    execute: Callable[[str], Any]
    """Runs a statement in the same transaction; may be awaitable."""
    commits_at_once: bool = False
    """Whether the driver does, outside a transaction."""


Opener = Callable[[str], AbstractAsyncContextManager[Writer]]
WRITERS: dict[str, Opener] = {}


async def settled(answer: Any) -> Any:
    """What a function of the write side answers, of a synchronous connection or not."""
    return await answer if isinstance(answer, Awaitable) else answer


def writer(opener: Callable[[str], AsyncIterator[Writer]]) -> Opener:
    made = asynccontextmanager(opener)
    WRITERS[opener.__name__] = made
    return made


def block(manager: Callable[[], Any]) -> Callable[[], Block]:
    """A synchronous context manager as an asynchronous one."""

    @asynccontextmanager
    async def entered() -> AsyncIterator[Any]:
        with manager() as value:
            yield value

    return entered


@writer
async def psycopg_connection(url: str) -> AsyncIterator[Writer]:
    with psycopg.connect(url) as conn:
        yield Writer(conn, block(conn.transaction), lambda sql: conn.execute(sql.encode()))


@writer
async def psycopg_autocommit(url: str) -> AsyncIterator[Writer]:
    with psycopg.connect(url, autocommit=True, cursor_factory=psycopg.RawCursor) as conn:
        conn.row_factory = dict_row
        yield Writer(conn, block(conn.transaction), lambda sql: conn.execute(sql.encode()), commits_at_once=True)


@writer
async def psycopg_cursor(url: str) -> AsyncIterator[Writer]:
    with psycopg.connect(url, autocommit=True) as conn, conn.cursor(row_factory=dict_row) as cursor:
        yield Writer(cursor, block(conn.transaction), lambda sql: cursor.execute(sql.encode()), commits_at_once=True)


@writer
async def psycopg_pipeline(url: str) -> AsyncIterator[Writer]:
    with psycopg.connect(url) as conn, conn.pipeline():
        yield Writer(conn, block(conn.transaction), lambda sql: conn.execute(sql.encode()))


@writer
async def psycopg_async(url: str) -> AsyncIterator[Writer]:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
        yield Writer(conn, conn.transaction, lambda sql: conn.execute(sql.encode()), commits_at_once=True)


@writer
async def psycopg_async_cursor(url: str) -> AsyncIterator[Writer]:
    async with await psycopg.AsyncConnection.connect(url) as conn, conn.cursor(row_factory=dict_row) as cursor:
        yield Writer(cursor, conn.transaction, lambda sql: cursor.execute(sql.encode()))


def _psycopg2_block(conn: Any) -> Callable[[], Block]:
    depth = 0

    @contextmanager
    def entered() -> Iterator[None]:
        nonlocal depth
        begin, keep, undo = ("savepoint s", "release s", "rollback to s") if depth else ("begin", "commit", "rollback")
        with conn.cursor() as cursor:
            if depth or conn.autocommit:
                cursor.execute(begin)
            depth += 1
            try:
                yield
                cursor.execute(keep)
            except BaseException:
                cursor.execute(undo)
                raise
            finally:
                depth -= 1

    return block(entered)


@writer
async def psycopg2_connection(url: str) -> AsyncIterator[Writer]:
    with closing(psycopg2.connect(url, cursor_factory=psycopg2.extras.RealDictCursor)) as conn:
        yield Writer(conn, _psycopg2_block(conn), lambda sql: conn.cursor().execute(sql))


@writer
async def psycopg2_cursor(url: str) -> AsyncIterator[Writer]:
    with closing(psycopg2.connect(url)) as conn:
        conn.autocommit = True
        with conn.cursor() as cursor:
            yield Writer(cursor, _psycopg2_block(conn), cursor.execute, commits_at_once=True)
