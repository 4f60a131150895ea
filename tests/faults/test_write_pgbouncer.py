"""Writers through PgBouncer in transaction mode: each transaction may meet another server connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import asyncpg
import psycopg
import psycopg2
import pytest
import sqlalchemy as sa
from sqlalchemy.ext import asyncio as sa_asyncio

from relay import Event, enqueue, publish, publish_many
from tests.servers.pgbouncer import every_pgbouncer, run_pgbouncer

WRITERS = 4
EACH = 60
"""Transactions of a writer, three messages each; more than any driver's threshold for preparing a statement."""

PREPARES = {"1.24", "1.26"}


def by_psycopg(url: str, version: str) -> None:
    with psycopg.connect(url, prepare_threshold=5 if version in PREPARES else None) as conn:
        for number in range(EACH):
            with conn.transaction():
                publish(conn, "one", number)
                enqueue(conn, "job", [number], dedupe_key=f"{conn.info.backend_pid}-{id(conn)}-{number}")
                publish_many(conn, [Event("many", number)])


def by_psycopg2(url: str, version: str) -> None:
    with closing(psycopg2.connect(url)) as conn:
        for number in range(EACH):
            with conn:
                publish(conn, "one", number)
                publish_many(conn, [Event("many", number), Event("many", number)])


def by_asyncpg(url: str, version: str) -> None:
    async def work() -> None:
        conn = await asyncpg.connect(url, statement_cache_size=100 if version in PREPARES else 0)
        for number in range(EACH):
            async with conn.transaction():
                await publish(conn, "one", number)
                await publish_many(conn, [Event("many", number), Event("many", number)])
        await conn.close()

    asyncio.run(work())


def by_sqlalchemy(url: str, version: str) -> None:
    async def work() -> None:
        engine = sa_asyncio.create_async_engine(
            url.replace("postgresql:", "postgresql+psycopg:"),
            connect_args={"prepare_threshold": 5 if version in PREPARES else None},
            poolclass=sa.NullPool,
        )
        async with sa_asyncio.AsyncSession(engine) as session:
            for number in range(EACH):
                async with session.begin():
                    await publish(session, "one", number)
                    await publish_many(session, [Event("many", number), Event("many", number)])

    asyncio.run(work())


@every_pgbouncer
@pytest.mark.parametrize("write", [by_psycopg, by_psycopg2, by_asyncpg, by_sqlalchemy])
def test_everything_is_written_once(
    relay_database_url: str, pgbouncer: str, write: Callable[[str, str], Awaitable[None] | None]
) -> None:
    settings: dict[str, Any] = {"max_prepared_statements": 100} if pgbouncer in PREPARES else {}
    with run_pgbouncer(pgbouncer, relay_database_url, **settings) as (url, _):
        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(lambda _: write(url, pgbouncer), range(WRITERS)))
    with psycopg.connect(relay_database_url) as conn:
        counts = conn.execute("select payload::text, count(*) from relay.outbox group by 1").fetchall()
    assert sum(count for _, count in counts) == WRITERS * EACH * 3
    assert len(counts) >= EACH
