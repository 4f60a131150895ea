"""Another number of shards: writers go on, order is kept, and it can be interrupted anywhere."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import psycopg
import pytest

from relay.admin import reshard
from relay.claims.rows import RowClaims
from relay.database.connection import Database
from relay.errors import RelayError
from sinks.base import DELIVERED, Outcome, Reject, Retry
from tests.harness.ordered import OrderedSink, ordered_sink
from tests.servers.base import wait_until
from tests.servers.postgres import migrate, new_cluster, new_database

MakeSink = Callable[..., OrderedSink]

WRONG = """
  select count(*) from relay.outbox o join relay.sinks s on s.name = o.sink
   where o.shard <> coalesce(abs((relay.hash_of(o.key, o.message_id) >> 32) % nullif(s.shards, 0)), 0)
"""


def silent(_: str) -> None:
    pass


def run(sink: OrderedSink, shards: int, say: Callable[[str], None] = silent) -> int:
    """All of it; how many messages moved."""
    with closing(Database(sink.url)) as database:
        assert reshard.begin(database, "main", shards, say=say) is not None
        reshard.wait(database, "main", say=say)
        moved = sum(messages for _, messages in reshard.move(database, "main"))
        assert reshard.finish(database, "main", shards)
    return moved


@contextmanager
def running(sink: OrderedSink, shards: int) -> Iterator[list[str]]:
    """It runs meanwhile, and has ended afterwards. Gives what it says."""
    said: list[str] = []
    thread = threading.Thread(target=run, args=(sink, shards, said.append))
    thread.start()
    wait_until(lambda: sink.count("sinks", "resharding"))
    yield said
    thread.join(20)
    assert not thread.is_alive()


def wrong(sink: OrderedSink) -> int:
    number: int = sink.sql(WRONG)[0][0]
    return number


@pytest.mark.parametrize("shards", [1, 3, 16, 200])
def test_messages_of_every_state_move_and_keep_their_order(ordered: MakeSink, shards: int) -> None:
    sink = ordered(shards=8, after_dead="block")
    worker = sink.worker()
    keys = [f"key-{number % 12}" for number in range(60)]
    ids = sink.insert(*keys)
    claim = sink.worker().claim(10)
    assert claim
    first = claim.ids[0]
    worker.settle(claim, worker.judge(claim, sink.send(worker, claim, lambda m: fail_first(m.id == first))))
    blocked = next(n for n in ids if n not in claim.ids and keys[ids.index(n)] != keys[ids.index(first)])
    while sink.count("stuck_keys") < 2:
        assert sink.round(worker, lambda m: Reject("never") if m.id == blocked else DELIVERED, limit=10)
    scheduled = sink.insert("key-1", "key-2", run_at="2099-01-01")
    stuck = sink.sql("select key, upto, retry_at, reason from relay.stuck_keys order by key")
    assert len(stuck) == 2
    there = sink.count()

    moved = run(sink, shards)
    assert wrong(sink) == 0
    assert moved > there / 3
    assert sink.count() == there
    assert sink.sql("select key, upto, retry_at, reason from relay.stuck_keys order by key") == stuck
    assert sink.sql("select name, shards, resharding from relay.sinks") == [("main", shards, False)]
    sink.insert(*keys[:12])
    assert wrong(sink) == 0
    sink.sql("update relay.stuck_keys set retry_at = now()")
    sink.drain(worker)
    for key in set(keys):
        seen = [message_id for message_id in sink.keys(key=key) if message_id not in scheduled]
        assert seen == sorted(seen)
    assert len({message.id for message in sink.log}) == 60 + 12 + 2 - 1


def fail_first(first: bool) -> Outcome:
    return Retry("not now") if first else DELIVERED


def test_it_waits_for_writers_who_know_the_old_number(ordered: MakeSink) -> None:
    sink = ordered(shards=2)
    keys = [f"key-{number}" for number in range(20)]
    with sink.transaction() as writer:
        sink.insert(*keys, on=writer)
        with running(sink, 7) as said:
            wait_until(lambda: said, what="its saying what it waits for")
            assert f"process {writer.info.backend_pid}" in said[0]
            sink.insert(*keys)  # others are not held up
            sink.insert(*keys, on=writer)
            assert sink.worker().claim(10) is None
            writer.commit()
    assert wrong(sink) == 0
    sink.drain()
    for key in keys:
        assert sink.keys(key=key) == sorted(sink.keys(key=key))
        assert len(sink.keys(key=key)) == 3


def test_it_waits_for_who_is_just_claiming(ordered: MakeSink, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = ordered(shards=2)
    sink.insert(*[f"key-{number}" for number in range(20)])
    worker = sink.worker()
    read = worker._reader._read
    with ExitStack() as stack:

        def reshard_before(conn: psycopg.Connection, shards: list[int], limit: int, apart: bool) -> Any:
            said = stack.enter_context(running(sink, 7))
            wait_until(lambda: said, what="its saying what it waits for")
            assert f"process {conn.info.backend_pid}" in said[0]
            return read(conn, shards, limit, apart)

        monkeypatch.setattr(worker._reader, "_read", reshard_before)
        assert worker.claim(10) is None
    assert wrong(sink) == 0
    sink.drain()
    assert len(sink.log) == 20


@pytest.fixture
def preparing_sink() -> Iterator[OrderedSink]:
    """On a server that allows two-phase commit."""
    with new_cluster() as cluster, cluster.run(max_prepared_transactions=10), new_database(cluster.url()) as url:
        migrate(url)
        with closing(ordered_sink(url, shards=2)) as sink:
            yield sink


def test_it_waits_for_a_prepared_transaction(preparing_sink: OrderedSink) -> None:
    sink = preparing_sink
    with psycopg.connect(sink.url) as writer:
        writer.tpc_begin(writer.xid(1, "test", "of reshard"))
        sink.insert(*[f"key-{number}" for number in range(20)], on=writer)
        writer.tpc_prepare()
        with running(sink, 7) as said:
            wait_until(lambda: said)
            assert "a prepared transaction" in said[0]
            writer.tpc_commit()
    assert wrong(sink) == 0
    assert sink.count() == 20


def test_it_waits_for_live_claims_and_reaps_dead_ones(ordered: MakeSink) -> None:
    sink = ordered(shards=2)
    sink.insert(*[f"key-{number}" for number in range(20)])
    worker, gone = sink.worker(), sink.worker()
    claim, _ = worker.claim(5), gone.claim(5)
    assert claim
    sink.sql("update relay.claims set locked_until = now() where token <> %s", claim.token)
    with running(sink, 7) as said:
        wait_until(lambda: any("claims that are being sent" in line for line in said))
        worker.settle(claim, worker.judge(claim, sink.send(worker, claim)))
    assert wrong(sink) == 0
    sink.drain(worker)
    assert len(sink.log) == 20


@pytest.mark.parametrize("after", ["begin", "wait", "one step", "all steps"])
def test_interrupted_anywhere_it_is_run_again(ordered: MakeSink, after: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reshard, "PAGES", 1)
    sink = ordered(shards=2)
    keys = [f"key-{number % 50}" for number in range(500)]
    sink.insert(*keys)
    worker = sink.worker()
    with closing(Database(sink.url)) as database:
        reshard.begin(database, "main", 5, say=silent)
        if after != "begin":
            reshard.wait(database, "main", say=silent)
        steps = reshard.move(database, "main")
        if after == "one step":
            assert next(steps)[1] > 0
        elif after == "all steps":
            assert sum(messages for _, messages in steps) > 0
    sink.insert(*keys[:50])
    assert worker.claim(10) is None
    sink.pass_time()
    sink.upkeep()
    assert (wrong(sink) == 0) == (after == "all steps")
    run(sink, 5)
    assert wrong(sink) == 0
    sink.drain(worker)
    assert len(sink.log) == 550
    for key in set(keys):
        assert sink.keys(key=key) == sorted(sink.keys(key=key))


def test_two_at_once_do_not_both_win(ordered: MakeSink) -> None:
    sink = ordered(shards=2)
    sink.insert(*[f"key-{number}" for number in range(50)])
    with closing(Database(sink.url)) as one, closing(Database(sink.url)) as other:
        reshard.begin(one, "main", 5, say=silent)
        reshard.begin(other, "main", 9, say=silent)
        for database in (one, other):
            reshard.wait(database, "main", say=silent)
            list(reshard.move(database, "main"))
        with pytest.raises(RelayError, match="somebody else"):
            reshard.finish(one, "main", 5)
        assert sink.worker().claim(10) is None
        reshard.finish(other, "main", 9)
        with pytest.raises(RelayError, match="somebody else"):
            reshard.finish(other, "main", 9)
        assert sum(messages for _, messages in reshard.move(other, "main")) == 0
    assert wrong(sink) == 0
    sink.drain()


def test_nothing_comes_due_meanwhile(ordered: MakeSink) -> None:
    """Or it would slip from the pages that are still to be gone through into those behind."""
    sink = ordered(shards=2)
    worker = sink.worker()
    ids = sink.insert(*["a"] * 3)
    sink.insert("b", run_at="2099-01-01")
    sink.round(worker, lambda m: Retry("no"))
    with closing(Database(sink.url)) as database:
        reshard.begin(database, "main", 5, say=silent)
        sink.pass_time()
        before = sink.sql("select ctid::text, id from relay.outbox order by id")
        sink.upkeep()
        assert sink.sql("select ctid::text, id from relay.outbox order by id") == before
    run(sink, 5)
    sink.drain(worker)
    assert sink.keys(key="a") == ids


def test_order_can_end(ordered: MakeSink) -> None:
    sink = ordered(shards=4, after_dead="block")
    worker = sink.worker()
    ids = sink.insert("a", "a", "b", "b", "c", None)
    sink.round(worker, lambda m: Retry("no") if m.key == "a" else Reject("no") if m.key == "b" else DELIVERED)
    never = sink.insert("d")
    sink.sql("update relay.outbox set run_at = 'infinity' where id = %s", never[0])  # by hand: nobody waits for it
    run(sink, 0)
    assert sink.count("stuck_keys") == 0
    assert sink.sql("select distinct shard from relay.outbox") == [(0,)]
    assert sink.sql("select id from relay.outbox where run_at is null order by id") == [
        (i,) for i in (*ids[:2], ids[3])
    ]
    assert sink.sql("select id from relay.outbox where run_at = 'infinity'") == [(never[0],)]
    assert worker.claim(10) is None
    rows = RowClaims(sink.opened[0], sink.settings.model_copy(update={"order": "none", "shards": 0}), "rows")
    claim = rows.claim(10)
    assert claim
    assert claim.ids == [*ids[:2], ids[3]]


def test_a_worker_that_did_not_hear_that_order_has_ended_claims_nothing(ordered: MakeSink) -> None:
    sink = ordered(shards=64)
    sink.insert(*[f"key-{number % 500}" for number in range(8000)])
    worker = sink.worker()
    assert sink.round(worker)
    worker._edge.line.join([(shard, 0) for shard in range(64)])  # what it has seen ready, and left to the next claim
    left = 8000 - len(sink.log)
    run(sink, 0)
    for _ in range(5):
        assert worker.claim(1000) is None
    assert sink.count(where="shard = 0 and claim_token is null") == left


def test_order_can_begin(ordered: MakeSink) -> None:
    sink = ordered(order="none")
    database = Database(sink.url)
    sink.opened.append(database)
    rows = RowClaims(database, sink.settings, "rows")
    ids = sink.insert(*["a", "b"] * 5)
    claim = rows.claim(4)
    assert claim
    with running(sink, 4) as said:
        wait_until(lambda: said)
        assert rows.claim(4) is None
        rows.release(claim, unknown=True, reason="no answer")
    assert wrong(sink) == 0
    assert rows.claim(4) is None
    sink.settings = sink.settings.model_copy(update={"order": "key", "shards": 4})
    sink.drain()
    assert sink.keys(key="a") == ids[::2]
    assert sink.keys(key="b") == ids[1::2]


def test_dead_messages_move_too(ordered: MakeSink) -> None:
    sink = ordered(shards=2)
    sink.insert(*[f"key-{number}" for number in range(30)])
    sink.round(sink.worker(), lambda m: Reject("no"))
    run(sink, 11)
    assert sink.count("dead") == 30
    wrong = WRONG.replace("relay.outbox", "relay.dead")
    assert sink.sql(wrong) == [(0,)]


def test_no_such_sink(ordered: MakeSink) -> None:
    sink = ordered()
    with closing(Database(sink.url)) as database:
        assert reshard.begin(database, "other", 5, say=silent) is None


REWRITES = {
    "vacuum full": ["vacuum full relay.outbox"],
    # They go to the first pages that have room: behind the walk through the table.
    "by hand": [
        "vacuum relay.outbox",
        "with gone as (delete from relay.outbox where ctid >= '(60,0)' returning *)"
        " insert into relay.outbox overriding system value select * from gone",
    ],
}


@pytest.mark.parametrize("rewrite", REWRITES)
def test_a_table_that_is_rewritten_half_way_is_gone_through_again(
    ordered: MakeSink, rewrite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same goes for whatever moves rows: pg_repack, pg_squeeze, a restore of a part, a hand-made update."""
    monkeypatch.setattr(reshard, "PAGES", 30)
    sink = ordered(shards=8)
    filler = sink.insert(*["filler"] * 1500)
    sink.insert(*[f"key-{number % 50}" for number in range(1500)])
    sink.sql("delete from relay.outbox where id = any(%s)", filler)
    with closing(Database(sink.url)) as database:
        assert reshard.begin(database, "main", 16, say=silent) == 8
        reshard.wait(database, "main", say=silent)
        steps = reshard.move(database, "main")
        for _ in range(2):
            next(steps)
        with psycopg.connect(sink.url, autocommit=True) as conn:
            for text in REWRITES[rewrite]:
                conn.execute(text.encode())
        for _ in steps:
            pass
        assert wrong(sink) > 0, "the rewrite moved messages to where the walk had been"
        worker = sink.worker()
        passes = 0
        while not reshard.finish(database, "main", 16):
            assert worker.claim(10) is None, "nothing is claimed before every message is in its shard"
            passes += 1
            for _ in reshard.move(database, "main"):
                pass
    assert passes == 1
    assert wrong(sink) == 0
