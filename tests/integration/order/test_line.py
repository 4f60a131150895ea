"""Workers of one relay tell each other which shards it is no use to look into."""

from __future__ import annotations

import threading
from collections.abc import Callable

from relay.claims.edge import Edge
from tests.harness.ordered import OrderedSink, deliver
from tests.servers.base import wait_until

WAITING = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"


def test_shard_that_is_being_settled_is_not_looked_into(ordered: Callable[..., OrderedSink]) -> None:
    sink = ordered(shards=4)
    edge = Edge(sink.settings.name, 4)
    worker = sink.worker(edge)
    sink.insert("a")
    claim = worker.claim(10)
    assert claim
    verdict = worker.judge(claim, sink.send(worker, claim, deliver))
    with sink.transaction() as stranger:
        stranger.execute("select from relay.outbox for update")
        settling = threading.Thread(target=worker.settle, args=(claim, verdict))
        settling.start()
        wait_until(lambda: sink.sql(WAITING) == [(1,)], what="the settle waiting for the stranger")
        known = edge.line.known()
    settling.join()
    assert known == list(claim.shards)
    assert edge.line.known() == []
