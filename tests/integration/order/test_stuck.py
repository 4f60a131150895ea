"""Keys whose first message is not delivered: what waits, for how long, and what goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg
import pytest

from relay.admin.dead import requeue
from relay.admin.keys import release, stuck_keys
from relay.claims.claim import LostClaim
from relay.claims.stuck import let_due_keys_go
from relay.database.connection import Database
from sinks.base import DELIVERED, Hold, Outcome, Reject, Retry
from tests.harness.ordered import Decide, OrderedSink
from tests.servers.base import wait_until

MakeSink = Callable[..., OrderedSink]


NOT_NOW = Retry("not now")


def fail(*ids: int, outcome: Outcome = NOT_NOW) -> Decide:
    """Decides that these messages fail."""
    return lambda message: outcome if message.id in ids else DELIVERED


def stuck(sink: OrderedSink) -> list[tuple[object, ...]]:
    return sink.sql("select key, upto, retry_at is null, reason from relay.stuck_keys order by key")


def test_later_messages_of_a_key_wait_and_others_go_on(ordered: MakeSink) -> None:
    sink = ordered(shards=1)
    worker = sink.worker()
    a1, b1, a2, none, a3, b2 = sink.insert("a", "b", "a", None, "a", "b")
    sink.round(worker, fail(a2))
    assert [message.id for message in sink.log] == [a1, b1, none, b2]
    assert stuck(sink) == [("a", a2 - 1, False, "not now")]
    assert sink.sql("select id, attempts, last_error from relay.outbox where run_at = 'infinity' order by 1") == [
        (a2, 1, "not now"),
        (a3, 0, None),
    ]
    (a4,) = sink.insert("a")
    assert sink.round(worker) == []
    assert sink.round(worker) is None
    sink.drain(worker)
    assert sink.keys(key="a") == [a1, a2, a3, a4]


def test_waiting_messages_cost_other_claims_nothing(ordered: MakeSink) -> None:
    sink = ordered(shards=1)
    worker = sink.worker()
    first, *_ = sink.insert(*["a"] * 50)
    sink.round(worker, fail(first), limit=10)
    for _ in range(4):
        assert sink.round(worker, limit=10) == []
    assert sink.count("outbox", "run_at = 'infinity'") == 50
    assert sink.round(worker) is None
    (other,) = sink.insert("b")
    assert sink.round(worker) == [other]


@pytest.mark.parametrize("outcome", [Retry("not now"), Hold("no such topic", "topic")])
def test_each_try_is_one_message_until_it_is_delivered(ordered: MakeSink, outcome: Outcome) -> None:
    sink = ordered(shards=1)
    worker = sink.worker()
    ids = sink.insert(*["a"] * 5)
    sink.round(worker, fail(ids[0], outcome=outcome))
    for attempt in range(2, 5):
        sink.pass_time()
        sink.upkeep()
        assert sink.round(worker, fail(ids[0], outcome=outcome)) == ids[:1]
        counted = attempt if isinstance(outcome, Retry) else 0
        assert sink.sql("select attempts from relay.outbox where id = %s", ids[0]) == [(counted,)]
    sink.pass_time()
    sink.upkeep()
    assert sink.round(worker) == ids[:1]
    assert sink.round(worker) == ids[1:]
    assert sink.round(worker) is None
    assert sink.is_empty()


def test_a_key_is_not_tried_before_its_time(ordered: MakeSink) -> None:
    sink = ordered(shards=1, backoff={"base": "1h", "max": "1h"})
    worker = sink.worker()
    ids = sink.insert("a", "a", "b")
    sink.round(worker, fail(ids[0], outcome=Retry("not now", after=60.0)))
    sink.insert("a")
    sink.round(worker)
    sink.upkeep()
    assert sink.round(worker) is None
    assert sink.sql("select retry_at - clock_timestamp() between '55 s' and '1 h' from relay.stuck_keys") == [(True,)]
    sink.drain(worker)
    assert sink.keys(key="a") == sorted(sink.keys(key="a"))


def test_a_sick_sink_makes_no_key_wait(ordered: MakeSink) -> None:
    sink = ordered(shards=1)
    worker = sink.worker()
    ids = sink.insert("a", "a", "b", None)
    sink.round(worker, lambda _: Hold("sick"))
    assert stuck(sink) == []
    assert sink.sql("select distinct attempts, run_at from relay.outbox") == [(0, None)]
    assert sink.round(worker) == ids


def test_after_dead_a_key_goes_on_by_default(ordered: MakeSink) -> None:
    sink = ordered(shards=1)
    worker = sink.worker()
    a1, a2, a3 = sink.insert("a", "a", "a")
    assert sink.round(worker, fail(a2, outcome=Reject("never"))) == [a1, a2, a3]
    assert sink.sql("select id, error, attempts from relay.dead") == [(a2, "never", 1)]
    assert sink.round(worker) == [a3]
    assert sink.is_empty()


def test_a_key_goes_on_after_its_last_attempt(ordered: MakeSink) -> None:
    sink = ordered(shards=1, max_attempts=3)
    worker = sink.worker()
    ids = sink.insert(*["a"] * 4)
    sink.drain(worker, decide=fail(ids[0]))
    assert sink.sql("select id, error, attempts from relay.dead") == [(ids[0], "not now", 3)]
    assert sink.keys(key="a") == ids[1:]


@pytest.mark.parametrize("goes_on_by", ["release", "requeue"])
def test_after_dead_a_key_waits_for_a_person_where_asked_to(ordered: MakeSink, goes_on_by: str) -> None:
    sink = ordered(shards=1, after_dead="block")
    worker = sink.worker()
    a1, a2, a3, b = sink.insert("a", "a", "a", "b")
    sink.round(worker, fail(a2, outcome=Reject("never")))
    (a4,) = sink.insert("a")
    for _ in range(3):
        sink.pass_time()
        sink.upkeep()
        sink.round(worker)
    assert [message.id for message in sink.log] == [a1, b]
    assert stuck(sink) == [("a", a2 - 1, True, "never")]
    assert sink.count("outbox", "run_at = 'infinity'") == 2
    if goes_on_by == "requeue":
        requeue(sink.opened[0], [a2])
    else:
        sink.sql("update relay.stuck_keys set retry_at = now()")
    sink.drain(worker)
    assert sink.keys(key="a") == ([a1, a2, a3, a4] if goes_on_by == "requeue" else [a1, a3, a4])


def test_a_blocked_key_stays_blocked_whatever_else_happens_to_it(ordered: MakeSink) -> None:
    sink = ordered(shards=1, after_dead="block")
    worker = sink.worker()
    with sink.transaction() as late:
        (a1,) = sink.insert("a", on=late)
        a2, a3 = sink.insert("a", "a")
        sink.round(worker, fail(a2, outcome=Reject("never")))
    (old,) = sink.insert("b")
    sink.round(worker, fail(a1))  # committed late, and fails: it waits with the others
    for _ in range(3):
        sink.pass_time()
        sink.upkeep()
        sink.round(worker)
    assert sink.keys(key="a") == []
    assert stuck(sink) == [("a", a1 - 1, True, "never")]
    assert sink.keys(key="b") == [old]
    sink.sql("update relay.stuck_keys set retry_at = now()")
    sink.drain(worker)
    assert sink.keys(key="a") == [a1, a3]


def test_requeueing_an_older_message_does_not_release_its_key(ordered: MakeSink) -> None:
    sink = ordered(shards=1, after_dead="block")
    worker = sink.worker()
    a1, a2, a3, a4 = sink.insert("a", "a", "a", "a")
    sink.round(worker, fail(a1, outcome=Reject("never")))
    sink.sql("update relay.stuck_keys set retry_at = now()")
    sink.upkeep()
    sink.round(worker)
    sink.round(worker, fail(a3, outcome=Reject("never")))
    assert stuck(sink) == [("a", a3 - 1, True, "never")]
    requeue(sink.opened[0], [a1])
    assert sink.round(worker) == [a1]
    assert stuck(sink) == [("a", a3 - 1, True, "never")]
    assert sink.round(worker) is None
    assert sink.keys(key="a") == [a2, a1]
    assert sink.count("outbox", f"id = {a4} and run_at = 'infinity'") == 1


def test_a_late_commit_goes_before_what_waits(ordered: MakeSink) -> None:
    sink = ordered(shards=1)
    worker = sink.worker()
    with sink.transaction() as late:
        a1, _ = sink.insert("a", "b", on=late)
        a2, a3 = sink.insert("a", "a")
        sink.round(worker, fail(a2))
    assert a1 in (sink.round(worker) or ())
    assert stuck(sink) == [("a", a2 - 1, False, "not now")]
    sink.drain(worker)
    assert sink.keys(key="a") == [a1, a2, a3]


def test_a_late_commit_beyond_what_was_let_go_waits_its_turn(ordered: MakeSink) -> None:
    sink = ordered(shards=1)
    worker = sink.worker()
    (a1,) = sink.insert("a")
    with sink.transaction() as late:
        (a2,) = sink.insert("a", on=late)
        (a3,) = sink.insert("a")
        sink.round(worker, fail(a1))
        sink.pass_time()
        sink.upkeep()
    assert sink.round(worker, fail(a1)) == [a1]
    sink.drain(worker)
    assert sink.keys(key="a") == [a1, a2, a3]


def test_a_key_that_was_let_go_during_a_claim_is_stuck_again(ordered: MakeSink) -> None:
    """The claim was read while the key was stuck; meanwhile its last waiting message was let go, or none was left."""
    sink = ordered(shards=1)
    worker = sink.worker()
    with sink.transaction() as late:
        (a2,) = sink.insert("a", on=late)
        (a3,) = sink.insert("a")
        sink.round(worker, fail(a3))
        (a1,) = sink.sql("select min(id) from relay.outbox")[0]
        sink.sql("update relay.outbox set run_at = 'infinity' where id = %s", a1)
    (a4,) = sink.insert("a")
    claim = worker.claim(10)  # a2 is sent, a4 waits
    assert claim
    assert claim.ids == [a2]
    sink.pass_time()
    sink.upkeep()
    sink.pass_time()
    sink.upkeep()
    worker.settle(claim, worker.judge(claim, sink.send(worker, claim)))
    assert sink.count("stuck_keys") == 1
    sink.upkeep()
    assert sink.round(worker) is not None
    sink.drain(worker)
    assert sink.keys(key="a") == [a2, a3, a4]


def test_marking_and_letting_go_at_once_forget_nothing(ordered: MakeSink) -> None:
    """A settle has made a message wait and not yet committed, while its key is let go and no other one waits."""
    sink = ordered(shards=1)
    worker = sink.worker()
    (a1,) = sink.insert("a")
    sink.round(worker, fail(a1))
    sink.pass_time()
    sink.upkeep()
    (a2,) = sink.insert("a")
    claim = worker.claim(10)
    assert claim
    assert (claim.ids, [message.id for _, message in claim.waiting]) == ([a1], [a2])
    with psycopg.connect(sink.url) as letting_go:
        letting_go.execute("delete from relay.stuck_keys")
        verdict = worker.judge(claim, sink.send(worker, claim))
        settling = threading.Thread(target=worker.settle, args=(claim, verdict))
        settling.start()
        wait_until(lambda: sink.sql("select 1 from pg_locks where not granted"))
        letting_go.commit()
        settling.join(10)
    assert sink.count("stuck_keys") == 1
    sink.drain(worker)
    assert sink.keys(key="a") == [a1, a2]


def test_a_stale_owner_changes_nothing(ordered: MakeSink) -> None:
    sink = ordered(shards=1)
    stale, owner = sink.worker(), sink.worker()
    a1, a2, b = sink.insert("a", "a", "b")
    claim = stale.claim(10)
    assert claim
    sink.expire_claims()
    sink.upkeep()
    sink.round(owner, fail(a1))
    everything = "select o::text from relay.outbox o union all select k::text from relay.stuck_keys k order by 1"
    before = sink.sql(everything)
    for outcomes in ([DELIVERED] * 3, [Retry("no")] * 3, [Reject("no")] * 3):
        with pytest.raises(LostClaim):
            stale.settle(claim, stale.judge(claim, outcomes))
    with pytest.raises(LostClaim):
        stale.release(claim, unknown=True, reason="no")
    assert sink.sql(everything) == before
    sink.drain(owner)
    assert sink.keys(key="a") == [a1, a2]
    assert sink.keys(key="b") == [b]


def test_an_attempt_that_died_with_its_relay_counts(ordered: MakeSink) -> None:
    sink = ordered(shards=1, max_attempts=2)
    ids = sink.insert("a", "a", None)
    worker = sink.worker()
    for _ in range(2):
        claim = worker.claim(1)
        assert claim
        assert claim.ids == ids[:1]
        sink.expire_claims()
        sink.upkeep()
    assert sink.round(worker) == []  # it is dead unsent, and its key is looked at anew
    error = "its last attempt was not finished: the relay that held it was gone for longer than the lease"
    assert sink.sql("select id, attempts, error from relay.dead") == [(ids[0], 2, error)]
    sink.drain(worker)
    assert [message.id for message in sink.log] == ids[1:]


def test_fewer_attempts_than_a_message_has_had_leave_it_one_more(ordered: MakeSink) -> None:
    sink = ordered(shards=1, max_attempts=5)
    worker = sink.worker()
    (a1,) = sink.insert("a", max_attempts=None)
    sink.sql("update relay.outbox set attempts = 7")
    assert sink.round(worker) == [a1]
    assert sink.is_empty()


def test_many_keys_are_let_go_at_once(ordered: MakeSink) -> None:
    sink = ordered(shards=8)
    worker = sink.worker()
    sink.insert(*[f"key-{number % 300}" for number in range(900)])
    sink.round(worker, lambda _: Retry("no"))
    assert sink.count("stuck_keys") == 300
    sink.pass_time()
    database = Database(sink.url)
    assert [let_due_keys_go(database, 200) for _ in range(3)] == [200, 100, 0]
    database.close()
    sink.drain(worker)
    for number in range(300):
        of_key = sink.keys(key=f"key-{number}")
        assert of_key == sorted(of_key)
        assert len(of_key) == 3


def test_a_moved_row_is_found_again(ordered: MakeSink) -> None:
    sink = ordered(shards=1)
    worker = sink.worker()
    gone, *ids = sink.insert("x", "a", "b", "a", "c")
    sink.round(worker, limit=1)
    claim = worker.claim(10)
    assert claim
    sink.sql("vacuum full relay.outbox")
    worker.settle(claim, worker.judge(claim, sink.send(worker, claim, fail(ids[0]))))
    assert sink.sql("select id from relay.outbox order by id") == [(ids[0],), (ids[2],)]
    sink.drain(worker)
    assert sorted(message.id for message in sink.log) == [gone, *ids]


def test_a_row_in_the_place_of_one_that_is_gone_stays(ordered: MakeSink) -> None:
    """Somebody deletes a message that is claimed, and its place is used again."""
    sink = ordered(shards=1)
    worker = sink.worker()
    first, second = sink.insert("a", "b")
    claim = worker.claim(10)
    assert claim
    place = sink.sql("select ctid from relay.outbox where id = %s", first)
    sink.sql("delete from relay.outbox where id = %s", first)
    sink.sql("vacuum relay.outbox")
    (new,) = sink.insert("c")
    assert sink.sql("select ctid from relay.outbox where id = %s", new) == place
    worker.settle(claim, worker.judge(claim, sink.send(worker, claim)))
    assert sink.sql("select id from relay.outbox") == [(new,)]
    sink.drain(worker)
    assert [message.id for message in sink.log] == [first, second, new]


def test_ids_may_lie_far_apart(ordered: MakeSink) -> None:
    sink = ordered(shards=1)
    ids = sink.insert("a", "b")
    for far in (10**7, 10**12, 2**62):
        sink.sql("select setval(pg_get_serial_sequence('relay.outbox', 'id'), %s)", far)
        ids += sink.insert("a", "b")
    worker = sink.worker()
    assert sink.round(worker, fail(ids[2])) == ids
    assert sink.sql("select id from relay.outbox order by id") == [(ids[number],) for number in (2, 4, 6)]
    sink.drain(worker)
    assert sink.keys(key="a") == ids[::2]


EQUAL_HASHES = ("account-0001:customer-01", "victim-832814hN!d>F.4c+3")
"""The hash can be worked out backwards, so whoever writes messages can make such keys in seconds."""


def test_keys_of_one_hash_are_told_apart(ordered: MakeSink) -> None:
    """What else goes by the hash: the shard, and the lock of `strict`; there, equal ones only wait for each other."""
    sink = ordered(shards=1)
    worker = sink.worker()
    one, other = EQUAL_HASHES
    assert sink.sql("select relay.hash_of(%s, null) = relay.hash_of(%s, null)", one, other) == [(True,)]
    a1, b1, a2, b2 = sink.insert(one, other, one, other)
    sink.round(worker, fail(a1))
    assert [message.id for message in sink.log] == [b1, b2]
    assert [key for key, *_ in stuck(sink)] == [one]
    b3, b4 = sink.insert(other, other)
    sink.round(worker, fail(b3))
    assert [key for key, *_ in stuck(sink)] == [one, other]
    sink.drain(worker)
    assert sink.keys(key=one) == [a1, a2]
    assert sink.keys(key=other) == [b1, b2, b3, b4]
    assert sink.is_empty()


@pytest.mark.parametrize("goes_on_by", ["release", "requeue"])
def test_what_is_done_to_one_key_leaves_the_other_of_its_hash_alone(ordered: MakeSink, goes_on_by: str) -> None:
    sink = ordered(shards=1, after_dead="block")
    worker = sink.worker()
    one, other = EQUAL_HASHES
    a1, b1, *_ = sink.insert(one, other, one, other)
    sink.round(worker, fail(a1, b1, outcome=Reject("never")))
    database = sink.opened[0]
    assert [(key.key, key.waiting) for key in stuck_keys(database, sink=None, everything=False)] == [
        (one, 1),
        (other, 1),
    ]
    if goes_on_by == "requeue":
        assert requeue(database, [a1]).ids == [a1]
    else:
        assert release(database, sink=None, keys=[one]) == [one]
    sink.upkeep()
    assert sink.sql("select key from relay.outbox where run_at = 'infinity'") == [(other,)]
    assert sink.sql("select key from relay.stuck_keys where retry_at is null") == [(other,)]


def test_keys_that_are_longer_than_an_index_allows_are_told_apart(ordered: MakeSink) -> None:
    sink = ordered(shards=1)
    worker = sink.worker()
    keys = ["\\\\x41" + "k" * 9000 + end for end in ("", "\\", "é")]
    ids = sink.insert(*keys, *keys)
    sink.round(worker, fail(*ids[:3]))
    assert sink.count("stuck_keys") == 3
    sink.drain(worker)
    for key, first, second in zip(keys, ids[:3], ids[3:], strict=True):
        assert sink.keys(key=key) == [first, second]


@pytest.mark.parametrize("edited", ["all", "the first"])
def test_what_waits_is_let_go_though_somebody_changes_it_just_then(ordered: MakeSink, edited: str) -> None:
    sink = ordered(shards=1)
    worker = sink.worker()
    ids = sink.insert("k", "k", "k", "k")
    sink.round(worker, fail(ids[0]))
    sink.pass_time()
    with psycopg.connect(sink.url) as editor:
        editor.execute(
            "update relay.outbox set headers = '{}' where id = any(%s)", [ids if edited == "all" else ids[:1]]
        )
        thread = threading.Thread(target=sink.upkeep)
        thread.start()
        wait_until(lambda: sink.sql("select pid from pg_locks where not granted"), what="the relay waiting for the row")
        editor.commit()
        thread.join()
    sink.drain(worker)
    assert sink.keys(key="k") == ids
