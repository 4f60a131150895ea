"""`strict`: writers of one key wait for each other, so that its ids commit in their order."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tests.harness.ordered import OrderedSink
from tests.servers.base import wait_until

MakeSink = Callable[..., OrderedSink]


def test_without_it_the_first_commit_is_sent_first(ordered: MakeSink) -> None:
    sink = ordered(shards=1)
    worker = sink.worker()
    with sink.transaction() as late:
        first = sink.insert("k", on=late)
        second = sink.insert("k")
        assert sink.round(worker) == second
    assert sink.round(worker) == first
    assert sink.keys(key="k") == second + first


def test_with_it_the_second_writer_waits_for_the_first(ordered: MakeSink) -> None:
    sink = ordered(shards=1, strict=True)
    worker = sink.worker()
    second: list[int] = []
    with sink.transaction() as late:
        first = sink.insert("k", on=late)
        writer = threading.Thread(target=lambda: second.extend(sink.insert("k")))
        writer.start()
        wait_until(lambda: sink.sql("select 1 from pg_locks where locktype = 'advisory' and not granted"))
        others = sink.insert("other", None)
        assert sink.round(worker) == others
        late.commit()
        writer.join(10)
    assert sink.round(worker) == first + second
    assert first < second


def test_with_it_a_rolled_back_writer_lets_the_next_one_go(ordered: MakeSink) -> None:
    sink = ordered(shards=1, strict=True)
    with sink.transaction() as late:
        sink.insert("k", on=late)
        late.rollback()
        second = sink.insert("k")
    assert sink.round(sink.worker()) == second


def test_a_strict_sink_among_several_is_strict(ordered: MakeSink) -> None:
    sink = ordered(shards=1)
    sink.sql("insert into relay.sinks (name, shards, strict) values ('audit', 0, false), ('strict', 4, true)")
    sink.sql("insert into relay.routes (kind, sink) values ('made', 'audit'), ('made', 'strict')")
    with sink.transaction() as late:
        sink.insert("k", on=late)
        writer = threading.Thread(target=lambda: sink.insert("k"))
        writer.start()
        wait_until(lambda: sink.sql("select 1 from pg_locks where locktype = 'advisory' and not granted"))
        late.commit()
        writer.join(10)
    rows = sink.sql("select message_id::text from relay.outbox where sink = 'strict' order by id")
    written = sink.sql("select message_id::text from relay.outbox where sink = 'main' order by created_at")
    assert rows == written
    assert sink.count("outbox") == 6
