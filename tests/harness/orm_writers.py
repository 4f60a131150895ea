"""The rest of what an application may write through: Django, SQLAlchemy, and asyncpg."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg
import django
import django.db
import psycopg
import sqlalchemy as sa
from django.conf import settings
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as sa_asyncio

from tests.harness.writers import Writer, block, writer

_POSTGRES = {"ENGINE": "django.db.backends.postgresql"}
os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
settings.configure(USE_TZ=True, DATABASES={"default": dict(_POSTGRES), "billing": dict(_POSTGRES)})
django.setup()


@contextmanager
def django_database(url: str, alias: str) -> Iterator[Any]:
    """One of Django's connections, led to this database."""
    info = psycopg.conninfo.conninfo_to_dict(url)
    connection = django.db.connections[alias]
    connection.close()
    names = {"NAME": "dbname", "USER": "user", "HOST": "host", "PORT": "port"}
    connection.settings_dict.update({name: info[ours] for name, ours in names.items()})
    try:
        yield connection
    finally:
        connection.close()


@writer
async def django_connection(url: str) -> AsyncIterator[Writer]:
    with django_database(url, "default") as connection:
        atomic = block(django.db.transaction.atomic)
        yield Writer(django.db.connection, atomic, _django_execute(connection), commits_at_once=True)


@writer
async def django_alias(url: str) -> AsyncIterator[Writer]:
    with django_database(url, "billing") as connection:
        atomic = block(lambda: django.db.transaction.atomic("billing"))
        yield Writer("billing", atomic, _django_execute(connection), commits_at_once=True)


@writer
async def django_cursor(url: str) -> AsyncIterator[Writer]:
    with django_database(url, "billing") as connection, connection.cursor() as cursor:
        atomic = block(lambda: django.db.transaction.atomic("billing"))
        yield Writer(cursor, atomic, _django_execute(connection), commits_at_once=True)


def _django_execute(connection: Any) -> Callable[[str], Any]:
    def execute(sql: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(sql)

    return execute


def _nesting(conn: Any) -> Callable[[], Any]:
    """SQLAlchemy's way to begin: another method for a savepoint."""
    return lambda: conn.begin_nested() if conn.in_transaction() else conn.begin()


def _sqlalchemy(url: str, driver: str) -> sa.Engine:
    return sa.create_engine(url.replace("postgresql:", f"postgresql+{driver}:"), poolclass=sa.NullPool)


def _sqlalchemy_async(url: str, driver: str) -> sa_asyncio.AsyncEngine:
    return sa_asyncio.create_async_engine(url.replace("postgresql:", f"postgresql+{driver}:"), poolclass=sa.NullPool)


@writer
async def sqlalchemy_connection(url: str) -> AsyncIterator[Writer]:
    with _sqlalchemy(url, "psycopg").connect() as conn:
        yield Writer(conn, block(_nesting(conn)), lambda sql: conn.execute(sa.text(sql)))


@writer
async def sqlalchemy_psycopg2(url: str) -> AsyncIterator[Writer]:
    with _sqlalchemy(url, "psycopg2").connect() as conn:
        yield Writer(conn, block(_nesting(conn)), lambda sql: conn.execute(sa.text(sql)))


@writer
async def sqlalchemy_session(url: str) -> AsyncIterator[Writer]:
    with orm.Session(_sqlalchemy(url, "psycopg")) as session:
        yield Writer(session, block(_nesting(session)), lambda sql: session.execute(sa.text(sql)))


@writer
async def sqlalchemy_scoped_session(url: str) -> AsyncIterator[Writer]:
    session = orm.scoped_session(orm.sessionmaker(_sqlalchemy(url, "psycopg2")))
    yield Writer(session, block(_nesting(session())), lambda sql: session.execute(sa.text(sql)))
    session.remove()


@writer
async def sqlalchemy_async_psycopg(url: str) -> AsyncIterator[Writer]:
    async with _sqlalchemy_async(url, "psycopg").connect() as conn:
        yield Writer(conn, _nesting(conn), lambda sql: conn.execute(sa.text(sql)))


@writer
async def sqlalchemy_async_asyncpg(url: str) -> AsyncIterator[Writer]:
    async with _sqlalchemy_async(url, "asyncpg").connect() as conn:
        yield Writer(conn, _nesting(conn), lambda sql: conn.execute(sa.text(sql)))


@writer
async def sqlalchemy_async_session(url: str) -> AsyncIterator[Writer]:
    async with sa_asyncio.AsyncSession(_sqlalchemy_async(url, "asyncpg")) as session:
        yield Writer(session, _nesting(session), lambda sql: session.execute(sa.text(sql)))


@writer
async def asyncpg_connection(url: str) -> AsyncIterator[Writer]:
    conn = await asyncpg.connect(url)
    # What applications do, and what would get at a payload that is passed as json.
    for name in ("json", "jsonb", "uuid"):
        await conn.set_type_codec(name, encoder=repr, decoder=repr, schema="pg_catalog")
    try:
        yield Writer(conn, conn.transaction, conn.execute, commits_at_once=True)
    finally:
        await conn.close()


@writer
async def asyncpg_pool(url: str) -> AsyncIterator[Writer]:
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool, pool.acquire() as conn:
        yield Writer(conn, conn.transaction, conn.execute, commits_at_once=True)
