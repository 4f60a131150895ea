"""How much a claim of shards takes, and what it leaves to the other workers of its relay."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from relay.claims import edge
from relay.claims.claim import Claim
from relay.claims.reading import LOOK_EVERY
from relay.claims.shards import ShardClaims
from relay.errors import DatabaseUnavailable
from tests.harness.ordered import OrderedSink

MakeSink = Callable[..., OrderedSink]


def workers_of(sink: OrderedSink, number: int) -> list[ShardClaims]:
    """Those of one relay."""
    shared = edge.Edge("main", sink.settings.shards)
    return [sink.worker(shared) for _ in range(number)]


def settle(sink: OrderedSink, worker: ShardClaims, claim: Claim | None) -> None:
    assert claim
    worker.settle(claim, worker.judge(claim, sink.send(worker, claim)))


def keys_of(sink: OrderedSink) -> dict[int, list[str]]:
    """Shard, and keys that fall into it."""
    keys: dict[int, list[str]] = {}
    for key, shard in sink.sql(
        "select 'key-' || n, abs((relay.hash_of('key-' || n, null) >> 32) %% %s) from generate_series(1, 500) n",
        sink.settings.shards,
    ):
        keys.setdefault(shard, []).append(key)
    return keys


def test_workers_of_one_relay_take_different_shards(ordered: MakeSink) -> None:
    sink = ordered(shards=64, workers=2)
    sink.insert(*[f"key-{number % 500}" for number in range(6000)])
    one, other = workers_of(sink, 2)
    assert sink.round(one)
    claims = [one.claim(1000), other.claim(1000)]
    assert not set(claims[0].shards if claims[0] else ()) & set(claims[1].shards if claims[1] else ())
    settle(sink, one, claims[0])
    settle(sink, other, claims[1])
    sink.drain(one, other)
    assert len(sink.log) == 6000


def test_a_shard_that_another_one_found_empty_is_not_hidden(ordered: MakeSink) -> None:
    sink = ordered(shards=8, workers=2)
    keys = keys_of(sink)
    one, other = workers_of(sink, 2)
    # The first claim cannot tell that it takes all of shard 0; the second one can.
    sink.insert(*[keys[0][0]] * 40, *[keys[1][0]] * 100)
    assert sink.round(one, limit=80)
    claim = one.claim(80)
    (new,) = sink.insert(keys[0][1])
    assert sink.round(other) == [new]
    settle(sink, one, claim)


def test_a_claim_that_failed_hides_nothing(ordered: MakeSink, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = ordered(shards=8, workers=2)
    ids = sink.insert(*[f"key-{number}" for number in range(50)])
    failing, other = workers_of(sink, 2)

    def fail(*_: object) -> None:
        raise psycopg.OperationalError("the connection is lost")

    monkeypatch.setattr(failing, "_note", fail)
    with pytest.raises(DatabaseUnavailable):
        failing.claim(100)
    assert sink.round(other) == ids


def test_a_worker_that_never_comes_back_leaves_its_shards_to_others(ordered: MakeSink) -> None:
    sink = ordered(shards=8)
    ids = sink.insert(*[f"key-{number}" for number in range(100)])
    gone, other = workers_of(sink, 2)
    assert gone.claim(1000)
    assert other.claim(1000) is None
    sink.expire_claims()
    sink.upkeep()
    assert sink.round(other) == ids


def test_large_messages_keep_all_workers_busy(ordered: MakeSink) -> None:
    sink = ordered(shards=16, workers=4, batch_bytes=300_000)
    large = '"' + "x" * 30_000 + '"'
    sink.insert(*[f"key-{number}" for number in range(300)], payload=large)
    workers = workers_of(sink, 4)
    assert sink.round(workers[0])
    for _ in range(3):
        claims = [worker.claim(1000) for worker in workers]
        assert all(claims)
        for worker, claim in zip(workers, claims, strict=True):
            settle(sink, worker, claim)


@pytest.mark.parametrize(("limit", "shards", "workers"), [(31, 64, 1), (15, 64, 2), (1000, 64, 1), (500, 1024, 1)])
def test_claims_are_full_where_all_shards_are_deep(ordered: MakeSink, limit: int, shards: int, workers: int) -> None:
    sink = ordered(shards=shards, workers=workers, batch_messages=limit)
    sink.sql(
        "insert into relay.outbox (kind, key, payload) select 'made', 'k' || n, '{}' from generate_series(1, 20000) n"
    )
    worker = sink.worker()
    sizes = [len(sink.round(worker) or ()) for _ in range(10)]
    assert sizes == [limit] * 10


def test_headers_count_as_bytes(ordered: MakeSink) -> None:
    sink = ordered(shards=4, batch_bytes=100_000, batch_messages=100)
    sink.sql(
        "insert into relay.outbox (kind, key, payload, headers)"
        " select 'made', 'k' || n, to_json(repeat(md5(n::text), 29)), jsonb_build_object('h', repeat(md5(n::text), 29))"
        " from generate_series(1, 300) n"
    )
    worker = sink.worker()
    seen = 0
    while sink.round(worker):
        sizes = [len(message.data) + len(message.headers["h"]) for message in sink.log[seen:]]
        assert sum(sizes) <= 100_000
        seen = len(sink.log)
    assert seen == 300


def test_what_comes_back_does_not_wait_behind_the_line(ordered: MakeSink) -> None:
    sink = ordered(shards=2)
    keys = keys_of(sink)
    (back,) = sink.insert(keys[1][1], run_at="2099-01-01")
    for key, messages in ((keys[0][0], 20_000), (keys[1][0], 2000)):
        sink.sql(
            "insert into relay.outbox (kind, key, payload) select 'made', %s, '{}' from generate_series(1, %s)",
            key,
            messages,
        )
    worker = sink.worker()
    for _ in range(4):
        sink.round(worker)
    sink.sql("update relay.outbox set run_at = null, due_at = now() where id = %s", back)
    sent: list[int] = []
    for _ in range(LOOK_EVERY):
        sent += sink.round(worker) or []
    assert back in sent
