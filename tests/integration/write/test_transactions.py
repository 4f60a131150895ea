"""Transactions that are not plain: two-phase commit, AUTOCOMMIT, another database's connections, Django's TestCase."""

from __future__ import annotations

import asyncio
import re
import sys
import unittest
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import assert_type
from uuid import UUID, uuid4

import asyncpg
import django.test
import psycopg
import psycopg2
import pytest
import sqlalchemy as sa
from django.db.backends.sqlite3.base import DatabaseWrapper
from django.db.migrations import RunSQL
from django.db.migrations.state import ProjectState
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as sa_asyncio

from relay import enqueue, enqueue_many, publish, publish_many
from relay.database.schema import script
from relay.errors import NoTransaction, UsageError
from tests.harness.orm_writers import django_database
from tests.servers.postgres import migrate, new_cluster, new_database

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def preparing_server() -> Iterator[str]:
    """URL of a server that allows two-phase commit."""
    with new_cluster() as cluster, cluster.run(max_prepared_transactions=10):
        yield cluster.url()


@pytest.fixture
def preparing_url(preparing_server: str) -> Iterator[str]:
    """URL of a database there, with a relay that waits to be woken."""
    with new_database(preparing_server) as url:
        migrate(url)
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute("insert into relay.relays (worker, idle_until) values ('idle', now() + interval '1 hour')")
        yield url


def kinds(url: str) -> list[str]:
    with psycopg.connect(url) as conn:
        return [kind for (kind,) in conn.execute("select kind from relay.outbox order by id")]


def by_psycopg(url: str, prepared: Callable[[], None], end: str) -> None:
    with closing(psycopg.connect(url)) as conn:
        conn.tpc_begin(conn.xid(1, uuid4().hex, "db"))
        publish(conn, "first", 1)
        enqueue(conn, "second", 1, dedupe_key="d")
        conn.tpc_prepare()
        prepared()
        getattr(conn, f"tpc_{end}")()


def by_psycopg2(url: str, prepared: Callable[[], None], end: str) -> None:
    with closing(psycopg2.connect(url)) as conn:
        conn.tpc_begin(conn.xid(1, uuid4().hex, "db"))
        publish(conn, "first", 1)
        enqueue(conn, "second", 1, dedupe_key="d")
        conn.tpc_prepare()
        prepared()
        getattr(conn, f"tpc_{end}")()


def by_sqlalchemy(url: str, prepared: Callable[[], None], end: str) -> None:
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"), poolclass=sa.NullPool)
    with engine.connect() as conn:
        transaction = conn.begin_twophase()
        publish(conn, "first", 1)
        enqueue(conn, "second", 1, dedupe_key="d")
        transaction.prepare()
        prepared()
        getattr(transaction, end)()


def by_asyncpg(url: str, prepared: Callable[[], None], end: str) -> None:
    name = uuid4().hex

    async def work() -> None:
        conn = await asyncpg.connect(url)
        await conn.execute("begin")
        await publish(conn, "first", 1)
        await enqueue(conn, "second", 1, dedupe_key="d")
        await conn.execute(f"prepare transaction '{name}'")
        prepared()
        await conn.execute(f"{end} prepared '{name}'")
        await conn.close()

    asyncio.run(work())


@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("write", [by_psycopg, by_psycopg2, by_sqlalchemy, by_asyncpg])
def test_a_prepared_transaction_takes_its_messages_along(
    preparing_url: str, write: Callable[[str, Callable[[], None], str], None], end: str
) -> None:
    seen: list[list[str]] = []
    write(preparing_url, lambda: seen.append(kinds(preparing_url)), end)
    assert seen == [[]]
    assert kinds(preparing_url) == (["first", "second"] if end == "commit" else [])


def test_sqlalchemys_two_phase_session(preparing_url: str) -> None:
    engine = sa.create_engine(preparing_url.replace("postgresql:", "postgresql+psycopg2:"), poolclass=sa.NullPool)
    with orm.Session(engine, twophase=True) as session, session.begin():
        publish(session, "k", 1)
    assert kinds(preparing_url) == ["k"]


def test_sqlalchemy_in_autocommit(relay_database_url: str) -> None:
    engine = sa.create_engine(
        relay_database_url.replace("postgresql:", "postgresql+psycopg:"),
        isolation_level="AUTOCOMMIT",
        poolclass=sa.NullPool,
    )
    with engine.connect() as conn, orm.Session(engine) as session:
        for given in (conn, session):
            with pytest.raises(NoTransaction, match="AUTOCOMMIT"):
                publish(given, "k", 1)
        publish(session, "allowed", 1, require_transaction=False)
        assert kinds(relay_database_url) == ["allowed"]


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_asynchronous_sqlalchemy_in_autocommit(relay_database_url: str, driver: str) -> None:
    async def work() -> None:
        url = relay_database_url.replace("postgresql:", f"postgresql+{driver}:")
        engine = sa_asyncio.create_async_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
        async with engine.connect() as conn:
            with pytest.raises(NoTransaction, match="AUTOCOMMIT"):
                await publish(conn, "k", 1)
            await publish(conn, "allowed", 1, require_transaction=False)

    asyncio.run(work())
    assert kinds(relay_database_url) == ["allowed"]


def test_a_transaction_begun_by_hand_is_one(relay_database_url: str) -> None:
    with psycopg.connect(relay_database_url, autocommit=True) as conn:
        conn.execute("begin")
        publish(conn, "k", 1)
        conn.execute("rollback")
    assert kinds(relay_database_url) == []


def test_other_databases_are_refused() -> None:
    with sa.create_engine("sqlite://").connect() as conn:
        with pytest.raises(UsageError, match=r"expected SQLAlchemy on PostgreSQL .*, got sqlite\+pysqlite"):
            publish(conn, "k", 1)
    with pytest.raises(UsageError, match=r"expected a PostgreSQL database, got sqlite .*'small'"):
        publish(DatabaseWrapper({"NAME": ":memory:"}, "small"), "k", 1)


def test_engines_and_pools_are_refused(relay_database_url: str) -> None:
    with pytest.raises(UsageError, match=r"expected a connection .* got sqlalchemy\.engine\.base\.Engine"):
        publish(sa.create_engine("postgresql+psycopg://"), "k", 1)

    async def work() -> None:
        async with asyncpg.create_pool(relay_database_url, min_size=1, max_size=1) as pool:
            with pytest.raises(UsageError, match=r"expected a connection .* got asyncpg\.pool\.Pool"):
                await publish(pool, "k", 1)

    asyncio.run(work())


def test_a_name_is_one_of_djangos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "django.db")
    with pytest.raises(UsageError, match="only Django's connections have a name"):
        publish("default", "k", 1)


def test_djangos_test_case(relay_database_url: str) -> None:
    """Each test sees its own messages only, and leaves none."""

    class Tests(django.test.TestCase):  # type: ignore[misc]
        databases = {"default", "billing"}  # noqa: RUF012 - as Django documents it

        def test_one(self) -> None:
            publish(django.db.connection, "one", 1)
            assert enqueue("default", "job", [], dedupe_key="d") is not None
            assert self.count() == 2

        def test_two(self) -> None:
            with django.db.transaction.atomic():
                assert enqueue("default", "job", [], dedupe_key="d") is not None
            assert self.count() == 1

        def count(self) -> int:
            with django.db.connection.cursor() as cursor:
                cursor.execute("select count(*) from relay.outbox")
                [count] = cursor.fetchone()
                return int(count)

    with django_database(relay_database_url, "default"), django_database(relay_database_url, "billing"):
        result = unittest.TestResult()
        unittest.defaultTestLoader.loadTestsFromTestCase(Tests).run(result)
    assert (result.testsRun, result.errors, result.failures) == (2, [], [])
    assert kinds(relay_database_url) == []


def test_the_schema_as_one_of_djangos_migrations(database_url: str) -> None:
    """For its test database: `relay migrate --sql`, without begin and commit."""
    sql = re.sub(r"^(begin|commit);$", "", script(), flags=re.MULTILINE)
    with django_database(database_url, "default") as connection, connection.schema_editor() as editor:
        RunSQL(sql).database_forwards("app", editor, ProjectState(), ProjectState())
    with django_database(database_url, "default"), django.db.transaction.atomic():
        publish("default", "k", 1)
    assert kinds(database_url) == ["k"]


async def with_types(conn: psycopg.AsyncConnection, session: sa_asyncio.AsyncSession) -> None:
    assert_type(await publish(conn, "k", 1), UUID)
    assert_type(await enqueue(conn, "k", 1), UUID | None)
    assert_type(await publish_many(conn, [("k", 1)]), list[UUID])
    assert_type(await enqueue_many(conn, [{"kind": "k", "args": 1}]), list[UUID | None])
    assert_type(await publish(session, "k", 1), UUID)


def test_type_checkers_know_what_is_awaitable(relay_database_url: str) -> None:
    with psycopg.connect(relay_database_url) as conn:
        assert_type(publish(conn, "k", 1), UUID)
        assert_type(enqueue(conn, "k", 1), UUID | None)
        assert_type(publish_many(conn, [("k", 1)]), list[UUID])
        assert_type(enqueue_many(conn, [{"kind": "k", "args": 1}]), list[UUID | None])

    async def work() -> None:
        url = relay_database_url.replace("postgresql:", "postgresql+psycopg:")
        engine = sa_asyncio.create_async_engine(url, poolclass=sa.NullPool)
        async with await psycopg.AsyncConnection.connect(relay_database_url) as conn:
            async with sa_asyncio.AsyncSession(engine) as session, session.begin():
                await with_types(conn, session)

    asyncio.run(work())
    assert len(kinds(relay_database_url)) == 9
