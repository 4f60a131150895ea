"""Heartbeats: a claim that is ours lives on, and one that is not is known to be lost before anything more is sent."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

import pytest

from relay.claims.claim import Claim
from relay.database.connection import Database
from relay.process.heartbeat import Heartbeat
from relay.process.leases import Lease, Leases
from relay.process.stopping import Stopping
from relay.process.store import Store
from tests.harness.ordered import OrderedSink

MakeSink = Callable[..., OrderedSink]


def claimed(sink: OrderedSink) -> Claim:
    sink.insert("a", "b")
    claim = sink.worker().claim(10)
    assert claim
    return claim


def beat(sink: OrderedSink, leases: Leases) -> None:
    with closing(Database(sink.url)) as database:
        Heartbeat(Store(database), leases, lambda: 30.0, Stopping()).beat()


def test_lease_is_renewed(ordered: MakeSink) -> None:
    sink = ordered()
    claim, leases = claimed(sink), Leases()
    sink.sql("update relay.claims set locked_until = now() + interval '1 second'")
    with leases.holding(claim, 30.0, time.monotonic()) as lease:
        beat(sink, leases)
        assert not lease.lost()
    assert sink.sql("select locked_until > now() + interval '20 seconds' from relay.claims") == [(True,)]


@pytest.mark.parametrize("how", ["reaped", "deleted by hand"])
def test_lost_claim_is_noticed(ordered: MakeSink, how: str) -> None:
    sink = ordered()
    claim, leases = claimed(sink), Leases()
    if how == "reaped":
        sink.expire_claims()
        sink.upkeep()
    else:
        sink.sql("delete from relay.claims")
    lease: Lease
    with leases.holding(claim, 30.0, time.monotonic()) as lease:
        assert not lease.lost()
        beat(sink, leases)
        assert lease.lost()
