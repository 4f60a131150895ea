"""A claim's death counts whatever it died of and in whatever phase; nothing else makes a message suspect.

What else could go the same way: a stop that leaves an outcome unknown, a lost answer of the database, a time-out while
a message is read, a message that is removed while it is read.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from relay.claims.rows import RowClaims
from relay.claims.shards import ShardClaims
from relay.database.connection import Database
from relay.errors import DatabaseTooSlow, DatabaseUnavailable
from relay.process.parts import new_claims
from sinks import memory
from sinks.base import DELIVERED, Message, Outcome
from tests.harness.outbox import Outbox
from tests.harness.served import Served

ORDERS = pytest.mark.parametrize("order", ["none", "key"])


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    memory.forget("main")
    yield
    memory.forget("main")


@contextmanager
def served(url: str, order: str, **keys: Any) -> Iterator[Served]:
    with Served(url, {"main": {"type": "memory", "order": order, "shards": 1, **keys}}) as here:
        yield here


def claims_of(here: Served) -> RowClaims | ShardClaims:
    settings = here.engines[0]._settings
    return new_claims(Database(here.url), settings, "another")


def write(here: Served, count: int, payload: str = "'{}'", **columns: str) -> list[int]:
    values = {"kind": "'made'", "payload": payload, **columns}
    text = f"insert into relay.outbox ({', '.join(values)}) select {', '.join(values.values())}"
    return [row[0] for row in here.sql(f"{text} from generate_series(1, {count}) returning id")]


def die(here: Served) -> None:
    """Whoever holds claims is gone for longer than the lease."""
    here.sql("update relay.claims set locked_until = now() - interval '1 second'")
    assert here.store.reap()


@ORDERS
def test_planned_stops_make_no_message_suspect(relay_database_url: str, order: str) -> None:
    with served(relay_database_url, order) as here:
        ids = write(here, 20)
        claims = claims_of(here)
        for _ in range(3):
            claim = claims.claim(1000)
            assert claim
            assert claim.ids == ids
            claims.release(claim, unknown=True, reason="the relay was stopped during the send")
        rows = here.sql("select distinct cardinality(prior_tokens), attempts, deaths from relay.outbox")
        assert rows == [(3, 0, None)]
        claim = claims.claim(1000)
        assert claim
        assert (claim.ids, claim.unread) == (ids, None)
        claims.close()


@ORDERS
def test_prior_tokens_have_a_bound(relay_database_url: str, order: str) -> None:
    with served(relay_database_url, order) as here:
        write(here, 1)
        claims = claims_of(here)
        here.sql("update relay.outbox set prior_tokens = array(select gen_random_uuid() from generate_series(1, 100))")
        claim = claims.claim(1000)
        assert claim
        claims.release(claim, unknown=True, reason=None)
        ((tokens,),) = here.sql("select prior_tokens from relay.outbox")
        assert len(tokens) == 100
        assert tokens[-1] == claim.token
        claims.close()


@ORDERS
@pytest.mark.parametrize("deaths", ["of relays", "of the sink"])
def test_a_message_that_claims_died_with_is_claimed_alone_and_read_later(
    relay_database_url: str, order: str, deaths: str
) -> None:
    with served(relay_database_url, order, max_attempts=9) as here:
        ids = write(here, 3)
        for _ in range(2):
            claims = claims_of(here)
            claim = claims.claim(1000)
            assert claim
            assert claim.ids == ids
            if deaths == "of relays":
                die(here)
            else:
                claims.release(claim, unknown=True, reason="it crashed", died=True)
            claims.close()
        claims = claims_of(here)
        claim = claims.claim(1000)
        assert claim
        assert claim.ids == ids[:1]
        assert claim.unread is not None
        claims.read(claim, 2**20)
        assert claim.messages[0].payload == b"{}"
        claims.release(claim, unknown=False, reason=None)
        claims.close()
        here.work(ids)
    assert [message.id for message in memory.delivered("main")] == ids


@ORDERS
def test_relays_that_die_while_they_read_use_up_its_attempts(relay_database_url: str, order: str) -> None:
    """Larger than a claim, so it is claimed first and read later: here by nobody who lives to do so."""
    with served(relay_database_url, order, max_attempts=3) as here:
        (large,) = write(here, 1, "to_json(repeat(md5('x'), 200000))", key="'a'")
        others = write(here, 3, key="'a'")
        for attempt in range(1, 4):
            claims = claims_of(here)
            claim = claims.claim(1000)
            assert claim
            assert (claim.ids, claim.messages[0].attempts) == ([large], attempt)
            assert claim.unread is not None
            claims.close()
            die(here)
        here.work([large, *others])
        assert here.sql("select id, attempts, deaths from relay.dead") == [(large, 3, 3)]
    assert [message.id for message in memory.delivered("main")] == others


@ORDERS
def test_what_is_larger_than_may_be_read_is_dead_unread(relay_database_url: str, order: str) -> None:
    with served(relay_database_url, order, message_bytes="5MB") as here:
        sizes = {"plain": "to_json(repeat(md5('x'), 200000))", "compressed": "to_json(repeat('x', 6000000))"}
        large = [write(here, 1, text)[0] for text in sizes.values()]
        fits = write(here, 1, "to_json(repeat('x', 4900000))") + write(here, 3)
        here.work(large + fits)
        dead = here.dead()
    assert dead.keys() == set(large)
    assert all("too large: 6" in reason and "at most 5000000 are read" in reason for reason in dead.values())
    assert [message.id for message in memory.delivered("main")] == fits


class Troubled(Database):
    """A database that fails in the middle of reading one message."""

    error: Callable[[], Exception] = staticmethod(lambda: DatabaseTooSlow("canceling statement (57014)"))

    def query(self, sql: Any, params: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        if "o.payload, o.body, o.headers" in sql:
            raise self.error()
        return super().query(sql, params)


@ORDERS
@pytest.mark.parametrize("error", [DatabaseTooSlow, DatabaseUnavailable])
def test_a_message_that_always_takes_too_long_to_read_runs_out_of_attempts(
    relay_database_url: str, order: str, error: type[Exception]
) -> None:
    with served(relay_database_url, order) as here:
        engine = here.engines[0]
        engine._claims.close()
        database = Troubled(here.url)
        database.error = lambda: error("no answer")
        engine._claims._database = database
        (slow,) = write(here, 1, "to_json(repeat(md5('x'), 200000))", key="'a'")
        others = write(here, 3, key="'a'")
        here.work([slow, *others])
        ((attempts, reason),) = here.sql("select attempts, error from relay.dead")
    assert attempts == 2
    assert "could not be read from the database" in reason
    assert [message.id for message in memory.delivered("main")] == others


@ORDERS
def test_a_message_that_is_removed_before_it_is_read_stops_nobody(relay_database_url: str, order: str) -> None:
    with served(relay_database_url, order) as here:
        (large,) = write(here, 1, "to_json(repeat(md5('x'), 200000))")
        claims = claims_of(here)
        claim = claims.claim(1000)
        assert claim
        here.sql("delete from relay.outbox")
        claims.read(claim, 2**26)
        assert claim.messages == []
        claims.settle(claim, claims.judge(claim, []))
        claims.close()
        here.work([large, *write(here, 2)])
    assert len(memory.delivered("main")) == 2


class Forgetful(Database):
    """A database whose answer to one commit is lost."""

    lost = 0

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Connection[Any]]:
        with super().transaction() as conn:
            yield conn
        if self.lost:
            self.lost -= 1
            self.close()
            raise DatabaseUnavailable("the answer was lost")


@ORDERS
@pytest.mark.parametrize("ends", ["settled", "released"])
def test_a_settle_whose_answer_was_lost_counts_once_and_as_no_lost_claim(
    relay_database_url: str, order: str, ends: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def decide(message: Message) -> Outcome:
        database.lost = 1
        if ends == "released" and len(sent) == 0:
            sent.append(message.id)
            raise RuntimeError
        sent.append(message.id)
        return DELIVERED

    sent: list[int] = []
    with served(relay_database_url, order) as here:
        engine = here.engines[0]
        database = Forgetful(here.url)
        engine._claims.close()
        engine._claims._database = database
        memory.intercept("main", decide)
        ids = write(here, 2)
        here.work(ids)
        found = {
            sample.labels["outcome"]: sample.value
            for metric in here.metrics.registry.collect()
            for sample in metric.samples
            if sample.name == "relay_messages_total"
        }
        assert found.get("delivered") == 2
    assert "claim lost" not in capsys.readouterr().out


def test_a_message_larger_than_the_memory_of_its_relay_runs_out_of_attempts(outbox: Outbox) -> None:
    outbox.configure({"main": {}, "other": {}}, max_attempts=2, message_bytes="1GiB")
    ((large,),) = outbox.sql(
        "insert into relay.outbox (sink, kind, body)"
        " select 'main', 'made', convert_to(repeat('x', 300000000), 'UTF8') returning id"
    )
    others = outbox.insert(5, sink="main") + outbox.insert(5, sink="other")
    with outbox.relay() as relay:
        status = Path(f"/proc/{relay.pid}/status").read_text().splitlines()
        used = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmSize"))
        resource.prlimit(relay.pid, resource.RLIMIT_AS, (used + 200_000_000, used + 200_000_000))
        outbox.wait_until_empty(timeout=60)
        assert relay.healthy()
    assert outbox.sql("select id, attempts from relay.dead") == [(large, 2)]
    assert set(outbox.broker.copies()) == set(others)
