"""One suite for every connection that an application may write through."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import Connection

import tests.harness.orm_writers  # noqa: F401 - registers its own
from relay import Event, Job, RawJson, enqueue, enqueue_many, publish, publish_many
from relay.errors import InvalidMessage, NoTransaction
from tests.harness.writers import WRITERS, Writer, settled

Suite = Callable[[Callable[[Writer], Awaitable[None]]], None]


class Undo(Exception):
    """Raised to leave a transaction without committing it."""


@pytest.fixture(params=sorted(WRITERS))
def with_writer(request: pytest.FixtureRequest, relay_database_url: str) -> Suite:
    """Runs a coroutine function with a fresh connection of each kind."""

    def run(work: Callable[[Writer], Awaitable[None]]) -> None:
        async def whole() -> None:
            async with WRITERS[request.param](relay_database_url) as writer:
                await work(writer)

        asyncio.run(whole())

    return run


@pytest.fixture
def other(relay_database_url: str) -> Iterator[Connection]:
    """Another connection, which sees what was committed."""
    with psycopg.connect(relay_database_url, autocommit=True) as conn:
        conn.execute("create table public.orders (id int)")
        yield conn


def written(conn: Connection, columns: str) -> list[Any]:
    return conn.execute(f"select {columns} from relay.outbox order by id".encode()).fetchall()


def test_messages_are_committed_with_the_business(with_writer: Suite, other: Connection) -> None:
    mine = uuid4()
    ids: list[Any] = []

    async def work(writer: Writer) -> None:
        async with writer.transaction():
            await settled(writer.execute("insert into orders values (42)"))
            ids.append(await settled(publish(writer.conn, "order.created", {"id": 42}, key="42")))
            headers = {"sidekiq": {"retry": 3}, "é": None}
            ids.append(await settled(publish(writer.conn, "x", b"\xff\0", message_id=mine, headers=headers, sink="s")))
            ids.append(await settled(enqueue(writer.conn, "SendReceipt", [42], max_attempts=3, key="k", sink="s")))
            assert written(other, "id") == []

    with_writer(work)
    assert ids[1] == mine
    assert all(type(message_id) is UUID for message_id in ids)
    assert written(other, "kind, payload::text, body, key, headers, message_id, run_at, max_attempts, sink") == [
        ("order.created", '{"id":42}', None, "42", None, ids[0], None, None, "unrouted"),
        ("x", None, b"\xff\0", None, {"sidekiq": {"retry": 3}, "é": None}, mine, None, None, "s"),
        ("SendReceipt", "[42]", None, "k", None, ids[2], None, 3, "s"),
    ]
    assert other.execute("select id from orders").fetchall() == [(42,)]


def test_a_rollback_takes_the_messages_along(with_writer: Suite, other: Connection) -> None:
    async def work(writer: Writer) -> None:
        with suppress(Undo):
            async with writer.transaction():
                await settled(publish(writer.conn, "k", 1))
                await settled(enqueue(writer.conn, "k", 1, dedupe_key="d"))
                await settled(publish_many(writer.conn, [("k", 1), ("k", 2)]))
                raise Undo

    with_writer(work)
    assert written(other, "id") == []


def test_a_savepoint_takes_only_its_own(with_writer: Suite, other: Connection) -> None:
    async def work(writer: Writer) -> None:
        async with writer.transaction():
            await settled(publish(writer.conn, "outer", 1))
            with suppress(Undo):
                async with writer.transaction():
                    await settled(enqueue(writer.conn, "inner", 1, dedupe_key="d"))
                    raise Undo
            assert await settled(enqueue(writer.conn, "again", 1, dedupe_key="d"))
            async with writer.transaction():
                await settled(publish(writer.conn, "released", 1))

    with_writer(work)
    assert written(other, "kind") == [("outer",), ("again",), ("released",)]


def test_a_duplicate_is_told(with_writer: Suite, other: Connection) -> None:
    answers: list[Any] = []

    async def work(writer: Writer) -> None:
        async with writer.transaction():
            answers.append(await settled(enqueue(writer.conn, "k", [1], dedupe_key="d")))
            answers.append(await settled(enqueue(writer.conn, "k", [2], dedupe_key="d")))
            jobs = [Job("k", [3], dedupe_key="d"), Job("k", [4]), Job("k", [5], dedupe_key="e"), ("k", [6])]
            answers.extend(await settled(enqueue_many(writer.conn, [*jobs, Job("k", [7], dedupe_key="e")])))

    with_writer(work)
    assert [answer is None for answer in answers] == [False, True, True, False, False, False, True]
    assert written(other, "payload::text, message_id") == [
        (f"[{number}]", answers[number - 1]) for number in (1, 4, 5, 6)
    ]


def test_many_are_written_in_order(with_writer: Suite, other: Connection) -> None:
    ids: list[Any] = []

    async def work(writer: Writer) -> None:
        async with writer.transaction():
            ids.extend(await settled(publish_many(writer.conn, (Event("k", {"n": n}, str(n)) for n in range(1500)))))
            ids.extend(await settled(enqueue_many(writer.conn, [Job("k", {"n": n}) for n in range(1500, 2500)])))
            assert await settled(publish_many(writer.conn, [])) == []
            assert await settled(enqueue_many(writer.conn, [])) == []

    with_writer(work)
    assert written(other, "(payload->>'n')::int, message_id") == list(enumerate(ids))


def test_a_delay_runs_on_the_databases_clock_and_a_time_is_a_time(with_writer: Suite, other: Connection) -> None:
    at = datetime(2099, 1, 31, 12, 30, 0, 123456, tzinfo=UTC)

    async def work(writer: Writer) -> None:
        async with writer.transaction():
            await settled(writer.execute("set local timezone = 'America/New_York'"))
            await settled(writer.execute("set local datestyle = 'German, DMY'"))
            await settled(writer.execute("set local intervalstyle = 'sql_standard'"))
            await settled(enqueue(writer.conn, "delay", [], run_at=timedelta(days=1, milliseconds=500)))
            await settled(enqueue(writer.conn, "time", [], run_at=at))
            await settled(enqueue(writer.conn, "past", [], run_at=timedelta(seconds=-1)))
            await settled(enqueue(writer.conn, "past", [], run_at=datetime(2001, 1, 1, tzinfo=UTC)))
            await settled(enqueue(writer.conn, "once", [], run_at=at, dedupe_key="d"))

    with_writer(work)
    found = written(other, "kind, run_at, abs(extract(epoch from run_at - created_at) - 86400.5) < 0.4")
    assert found[0][2]
    assert [(kind, run_at) for kind, run_at, _ in found[1:]] == [
        ("time", at),
        ("past", None),
        ("past", None),
        ("once", at),
    ]


HARD = ["", "'", '"', "\\", "\\x00", "%", "%s", "%(kind)s", ":kind", "$1", "{}", "zoë 😀", "\n\t\x01", "NULL", "null"]


def test_text_arrives_as_it_is(with_writer: Suite, other: Connection) -> None:
    raw = '{"b":1,"a":1.0, "a":2,"n":1234567890123456789,"x":1e308,"m":0.1000}'

    async def work(writer: Writer) -> None:
        async with writer.transaction():
            for text in HARD:
                await settled(publish(writer.conn, f"k{text}", text, key=text, headers={text: text}))
            await settled(publish_many(writer.conn, [Event(f"k{text}", text, text, {text: text}) for text in HARD]))
            jobs = [Job(f"k{text}", text, None, None, f"d{text}", {text: text}, text) for text in HARD]
            await settled(enqueue_many(writer.conn, jobs))
            await settled(publish(writer.conn, "raw", RawJson(raw)))
            await settled(publish_many(writer.conn, [("body", bytes(range(256))), ("body", b"")]))

    with_writer(work)
    found = written(other, "kind, payload::text, body, key, headers")
    assert [(kind[1:], key, headers) for kind, _, _, key, headers in found[: 3 * len(HARD)]] == [
        (text, text, {text: text}) for text in HARD * 3
    ]
    assert found[3 * len(HARD)][1] == raw
    assert [body for _, _, body, _, _ in found[-2:]] == [bytes(range(256)), b""]


def test_outside_a_transaction_it_is_refused_where_it_would_be_committed(with_writer: Suite, other: Connection) -> None:
    async def work(writer: Writer) -> None:
        if not writer.commits_at_once:
            await settled(publish(writer.conn, "begins a transaction", 1))
            assert written(other, "id") == []
            return
        calls: tuple[Callable[[], Any], ...] = (
            lambda: publish(writer.conn, "k", 1),
            lambda: enqueue(writer.conn, "k", 1, dedupe_key="d"),
            lambda: publish_many(writer.conn, [("k", 1)]),
            lambda: enqueue_many(writer.conn, [("k", 1)]),
        )
        for call in calls:
            with pytest.raises(NoTransaction, match=r"no transaction is open, .* begin one first \(.+\)"):
                await settled(call())
        assert written(other, "id") == []
        await settled(publish(writer.conn, "k", 1, require_transaction=False))
        assert len(written(other, "id")) == 1

    with_writer(work)


def test_without_await_nothing_can_be_committed(
    with_writer: Suite, other: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever forgets `await` believes that the message is part of the transaction. The same could happen to a task
    that is never run, to a call whose answer is kept and not used, and to one on a cursor."""
    said: list[str] = []

    async def work(writer: Writer) -> None:
        if not hasattr(writer.conn, "__aenter__"):
            return
        monkeypatch.setattr("sys.unraisablehook", lambda unraisable: said.append(str(unraisable.exc_value)))
        # psycopg leaves the block of a transaction without an error where the connection is closed.
        with suppress(Exception):
            async with writer.transaction():
                await settled(writer.execute("insert into orders values (1)"))
                publish(writer.conn, "k", 1)
        assert len(said) == 1
        assert said[0].startswith("a message was not written: `await` is missing")

    with_writer(work)
    assert other.execute("select id from orders").fetchall() == []


def test_an_awaitable_may_be_a_task_or_gathered(with_writer: Suite, other: Connection) -> None:
    async def work(writer: Writer) -> None:
        async with writer.transaction():
            answer = publish(writer.conn, "k", 1)
            await (asyncio.create_task(answer) if asyncio.iscoroutine(answer) else settled(answer))
            answer = publish(writer.conn, "k", 1)
            await (asyncio.gather(answer) if asyncio.iscoroutine(answer) else settled(answer))

    with_writer(work)
    assert len(written(other, "id")) == 2


def test_what_is_refused_leaves_the_transaction_as_it_was(with_writer: Suite, other: Connection) -> None:
    async def work(writer: Writer) -> None:
        async with writer.transaction():
            await settled(publish(writer.conn, "before", 1))
            with pytest.raises(InvalidMessage, match=r"payload\.a: expected text without"):
                await settled(publish(writer.conn, "k", {"a": "\0"}))
            with pytest.raises(InvalidMessage, match=r"events\[1500\]\.payload: expected a finite number"):
                await settled(publish_many(writer.conn, [("k", 1)] * 1500 + [("k", float("nan"))]))
            await settled(publish(writer.conn, "after", 1))

    with_writer(work)
    assert written(other, "kind") == [("before",), ("after",)]
