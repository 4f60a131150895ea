"""In which order the messages of an ordered sink are read, whatever commits late or comes back."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import LiteralString

import psycopg
import pytest

from relay.admin.apply import reroute
from relay.admin.dead import requeue
from relay.claims import edge, reading
from relay.claims.claim import LostClaim
from relay.claims.shards import ShardClaims
from relay.statements import statement
from sinks.base import DELIVERED, Outcome, Reject, Retry
from tests.harness.ordered import OrderedSink

MakeSink = Callable[..., OrderedSink]


def deliver_nothing(_: object) -> Outcome:
    return Retry("not now", 60.0)  # the backoff alone, with its jitter, may be over by the next statement


def reject(_: object) -> Outcome:
    return Reject("never")


@pytest.fixture(autouse=True)
def _moves_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Edges move with every claim."""
    monkeypatch.setattr(edge, "EVERY_S", 0.0)
    monkeypatch.setattr(edge, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(edge, "SHARE", 1e9)


def test_messages_are_claimed_in_id_order_shard_by_shard(ordered: MakeSink) -> None:
    sink = ordered(shards=8)
    ids = sink.insert(*[f"key-{number % 40}" for number in range(400)])
    worker = sink.worker()
    while (sent := sink.round(worker, limit=50)) is not None:
        assert sent == sorted(sent)
    assert sorted(message.id for message in sink.log) == ids
    for number in range(40):
        of_key = sink.keys(key=f"key-{number}")
        assert of_key == sorted(of_key)
    assert sink.is_empty()


def test_keys_of_one_shard_stay_with_its_owner(ordered: MakeSink) -> None:
    sink = ordered(shards=4)
    sink.insert(*[f"key-{number}" for number in range(40)])
    one, other = sink.worker(), sink.worker()
    held = one.claim(4)
    assert held
    sink.insert(*[f"key-{number}" for number in range(40)])
    keys = {message.key for message in held.messages}
    while (claim := other.claim(100)) is not None:
        assert not keys & {message.key for message in claim.messages}
        other.settle(claim, other.judge(claim, [DELIVERED] * len(claim.messages)))
    one.settle(held, one.judge(held, [DELIVERED] * len(held.messages)))
    sink.drain(other)


def test_a_paused_sink_is_not_claimed(ordered: MakeSink) -> None:
    sink = ordered()
    sink.insert("k")
    worker = sink.worker()
    sink.sql("update relay.sinks set paused_at = now(), paused_reason = 'test'")
    assert worker.claim(10) is None
    sink.sql("update relay.sinks set paused_at = null, paused_reason = null")
    assert sink.round(worker) == sink.keys(key="k") != []


@pytest.mark.parametrize("strict", [True, False])
def test_a_late_commit_is_not_overtaken_by_what_is_written_after_it(ordered: MakeSink, strict: bool) -> None:
    sink = ordered(shards=1, strict=strict)
    worker = sink.worker()
    with sink.transaction() as late:
        first = sink.insert("k", on=late)
        for _ in range(5):
            sink.insert("other")
            assert sink.round(worker)
    second = sink.insert("k")
    assert sink.round(worker) == first + second


def test_edges_move_on_behind_the_writers(ordered: MakeSink) -> None:
    sink = ordered(shards=2)
    worker = sink.worker()
    mover, database = edge.Edge("main", 2), sink.opened[0]
    (before,) = sink.insert("other")
    sink.round(worker)
    with sink.transaction() as writer:
        sink.insert("k", on=writer)
        (after,) = sink.insert("other")
        mover.move(database)
        assert max(mover.mark.after) < before
        sink.round(worker)
        mover.move(database)
        assert max(mover.mark.after) < before
    sink.round(worker)
    mover.move(database)
    assert mover.mark.after == (after, after)


def test_edges_stay_before_what_is_not_delivered(ordered: MakeSink) -> None:
    sink = ordered(shards=1)
    worker = sink.worker()
    ids = sink.insert("a", "b", "c")
    claim = worker.claim(10)
    assert claim
    mover, database = edge.Edge("main", 1), sink.opened[0]
    mover.move(database)
    assert mover.mark.after == (ids[0] - 1,)
    worker.release(claim, unknown=False, reason=None)
    mover.move(database)
    assert mover.mark.after == (ids[0] - 1,)


def park(sink: OrderedSink, worker: ShardClaims) -> int:
    """A scheduled message that all edges have passed."""
    (parked,) = sink.insert("k", run_at="2099-01-01")
    for _ in range(3):
        sink.insert("other")
        sink.round(worker)
    return parked


def test_what_somebody_made_ready_by_hand_is_found(ordered: MakeSink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge, "EVERYTHING_EVERY_S", 0.0)
    sink = ordered(shards=1)
    worker = sink.worker()
    parked = park(sink, worker)
    sink.sql("update relay.outbox set run_at = null")
    sink.drain(worker)
    assert sink.keys(key="k") == [parked]


def test_scheduled_messages_take_their_place_among_what_is_due(ordered: MakeSink) -> None:
    sink = ordered(shards=1)
    worker = sink.worker()
    first, second = sink.insert("k", "k", run_at="2099-01-01")
    (third,) = sink.insert("k")
    assert sink.round(worker) == [third]  # later ones of its key do not wait for a scheduled message
    for _ in range(3):
        sink.insert("other")
        sink.round(worker)
    (fourth,) = sink.insert("k")
    sink.pass_time()
    sink.upkeep()
    assert sink.round(worker) == [first, second, fourth]
    assert sink.is_empty()


def test_a_requeued_message_comes_before_later_ones(ordered: MakeSink) -> None:
    sink = ordered(shards=1, strict=True)
    worker = sink.worker()
    (bad,) = sink.insert("k")
    sink.round(worker, reject)
    for _ in range(3):
        sink.insert("other")
        sink.round(worker)
    (later,) = sink.insert("k")
    assert requeue(sink.opened[0], [bad]).ids == [bad]
    assert sink.count("dead") == 0
    assert sink.round(worker) == [bad, later]
    assert sink.is_empty()


def test_a_rerouted_message_is_found_below_the_edge(ordered: MakeSink) -> None:
    sink = ordered(shards=1)
    worker = sink.worker()
    sink.sql("update relay.routes set kind = 'made'")
    sink.sql("insert into relay.outbox (kind, key, payload) values ('else', 'k', '{}')")
    for _ in range(3):
        sink.insert("other")
        sink.round(worker)
    sink.sql("update relay.routes set kind = '*'")
    assert sum(reroute(sink.opened[0])) == 1
    (later,) = sink.insert("k")
    assert sink.round(worker) == sink.keys(key="k")
    assert len(sink.keys(key="k")) == 2
    assert sink.keys(key="k")[1] == later


def test_whoever_lost_a_claim_starts_where_it_started(ordered: MakeSink) -> None:
    sink = ordered(shards=1)
    worker, other = sink.worker(), sink.worker()
    first = sink.insert("k", "other", "k")
    lost = worker.claim(10)
    assert lost
    sink.expire_claims()
    sink.upkeep()
    held = other.claim(10)
    assert held
    with pytest.raises(LostClaim):
        worker.settle(lost, worker.judge(lost, [DELIVERED] * 3))
    other.release(held, unknown=False, reason=None)
    later = sink.insert("k")
    assert sink.round(worker) == first + later


def test_what_a_claim_says_of_itself_is_what_it_sends(ordered: MakeSink) -> None:
    sink = ordered(shards=2)
    first, second = sink.insert("k", "k")
    worker = sink.worker()
    sink.round(worker, deliver_nothing)
    sink.upkeep()
    sink.insert("k", "other")
    claim = worker.claim(10)
    assert claim
    noted = sink.sql("select unnest(ids) from relay.claims where token = %s", claim.token)
    assert sorted(row[0] for row in noted) == claim.ids
    assert not {first, second} & set(claim.ids)
    assert sink.count("claims") == 1


def test_a_message_that_two_claims_died_with_is_taken_alone(ordered: MakeSink) -> None:
    sink = ordered(shards=1, max_attempts=3)
    ids = sink.insert("a", "b", "c")
    worker = sink.worker()
    for _ in range(2):
        assert worker.claim(10)
        sink.expire_claims()
        sink.upkeep()
    for message_id in ids:
        claim = worker.claim(10)
        assert claim
        assert claim.ids == [message_id]
        assert claim.messages[0].attempts == 3
        worker.settle(claim, worker.judge(claim, [DELIVERED]))


def test_a_batch_is_bounded_by_bytes(ordered: MakeSink) -> None:
    sink = ordered(shards=1, batch_bytes=10_000)
    sink.insert(*"abcdefgh", payload='"' + "x" * 4000 + '"')
    worker = sink.worker()
    sizes = []
    while (sent := sink.round(worker)) is not None:
        sizes.append(len(sent))
    assert sizes == [2, 2, 2, 2]


def test_small_and_large_messages_in_turn(ordered: MakeSink) -> None:
    sink = ordered(shards=1, batch_bytes=10_000)
    large, compressed = '"' + "x" * 1000 + '"', '"' + "x" * 50_000 + '"'
    ids = []
    for _ in range(3):
        ids += sink.insert(*"abcde")
        ids += sink.insert(*"abcdefghijkl", payload=large)
        ids += sink.insert("a", payload=compressed)
        ids += sink.insert(*"abc", headers='{"h": "' + "y" * 3000 + '"}')
    worker = sink.worker()
    seen = 0
    while sink.round(worker) is not None:
        sizes = [len(message.data) for message in sink.log[seen:]]
        assert sum(sizes) <= 10_000 or len(sizes) == 1
        seen = len(sink.log)
    assert [message.id for message in sink.log] == ids
    assert {len(message.data) for message in sink.log} == {2, 1002, 50_002}
    assert sum(len(message.headers.get("h", "")) for message in sink.log) == 9 * 3000


@pytest.mark.parametrize(
    ("payload", "expected"),
    [('"' + "x" * 100 + '"', "claims/read_small_shards"), ('"' + "x" * 3000 + '"', "claims/read_shards")],
    ids=["small", "compressed"],
)
def test_claims_read_once(ordered: MakeSink, monkeypatch: pytest.MonkeyPatch, payload: str, expected: str) -> None:
    """Once it is known what size messages have."""
    sink = ordered(batch_messages=100)
    worker = sink.worker()
    names: list[str] = []

    def noted(name: str) -> LiteralString:
        names.append(name)
        return statement(name)

    monkeypatch.setattr(reading, "statement", noted)
    for _ in range(4):
        sink.insert("a", "b", payload=payload)
        names.clear()
        assert sink.round(worker)
    assert [name for name in names if "/read_" in name] == [expected]


def test_claims_are_filled_though_most_of_it_waits_in_one_shard(ordered: MakeSink) -> None:
    sink = ordered(shards=64)
    sink.insert(*["hot"] * 3000)
    worker = sink.worker()
    rounds = 0
    started = time.monotonic()
    while True:
        sink.insert(*[f"key-{rounds}-{number}" for number in range(30)])
        sent = sink.round(worker)
        assert sent
        rounds += 1
        if len(sink.keys(key="hot")) == 3000:
            break
    assert rounds <= 10, time.monotonic() - started
    assert sink.keys(key="hot") == sorted(sink.keys(key="hot"))


def test_a_claim_waits_for_nobody(ordered: MakeSink) -> None:
    """Another worker that is half way through a claim holds nobody up."""
    sink = ordered(shards=2)
    sink.insert(*[f"key-{number}" for number in range(20)])
    with psycopg.connect(sink.url) as half_way:
        half_way.execute("select pg_advisory_xact_lock(hashtext('relay shard of main'), 0)")
        claim = sink.worker().claim(100)
        assert claim
        assert claim.shards == (1,)


def test_where_others_are_claiming_the_oldest_the_next_are_claimed(ordered: MakeSink) -> None:
    sink = ordered(shards=64)
    sink.insert(*[f"key-{number % 500}" for number in range(4000)])
    worker = sink.worker()
    sent = sink.round(worker)
    assert sent is not None
    with psycopg.connect(sink.url) as others:
        oldest = others.execute("select shard from relay.outbox group by shard order by min(id)").fetchall()
        for (shard,) in oldest[:60]:
            others.execute("select pg_advisory_xact_lock(hashtext('relay shard of main'), %s)", [shard])
        claim = worker.claim(1000)
        assert claim
        assert set(claim.shards) <= {shard for (shard,) in oldest[60:]}
    worker.release(claim, unknown=False, reason=None)
    sink.drain(worker)
    assert len(sink.log) == 4000


def parked_below_the_edge(sink: OrderedSink, worker: ShardClaims) -> int:
    """A message that somebody made ready by hand, where no reader looks."""
    parked = park(sink, worker)
    sink.sql("update relay.outbox set run_at = null")
    assert sink.round(worker) is None
    return parked


def test_edges_are_forgotten_with_the_connection(ordered: MakeSink) -> None:
    """The server may have been restarted, or be another one, and draw ids again that it had drawn."""
    sink = ordered(shards=1)
    worker = sink.worker()
    parked = parked_below_the_edge(sink, worker)
    worker.close()
    assert sink.round(worker) == [parked]


def test_edges_are_forgotten_when_ids_come_again(ordered: MakeSink) -> None:
    sink = ordered(shards=1)
    worker = sink.worker()
    parked = parked_below_the_edge(sink, worker)
    sink.sql("select setval('relay.outbox_id_seq', %s)", parked)
    assert sink.round(worker) == [parked]


def test_what_is_below_the_edge_is_found_while_a_writer_stays(
    ordered: MakeSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = ordered(shards=1)
    worker = sink.worker()
    parked = park(sink, worker)
    with sink.transaction() as writer:
        sink.insert("open", on=writer)
        for _ in range(3):
            assert sink.round(worker) is None
        sink.sql("update relay.outbox set run_at = null where id = %s", parked)
        assert sink.round(worker) is None
        monkeypatch.setattr(worker._edge, "_everything_at", 0.0)
        assert sink.round(worker) == [parked]
