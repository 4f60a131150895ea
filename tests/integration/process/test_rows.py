"""Rows that somebody else touches while they are claimed."""

from __future__ import annotations

import time

import psycopg
import pytest

from tests.harness.outbox import Outbox
from tests.servers.base import wait_until


def test_rows_moved_while_claimed_lose_nothing(outbox: Outbox) -> None:
    """A message that is to be tried again moves to where a delivered one was."""
    outbox.configure(backoff={"base": "1h", "max": "1h"})
    outbox.broker.script(hang=True, kinds={"bad": "retry"})
    (first,) = outbox.insert(sink="elsewhere")
    filler = outbox.insert(12, sink="elsewhere")
    good, bad = outbox.insert(3), outbox.insert(3, kind="bad")
    good += outbox.insert(3)
    outbox.sql("delete from relay.outbox where id = any(%s)", filler)
    outbox.sql("vacuum relay.outbox")
    with outbox.relay():
        wait_until(outbox.broker.calls)
        outbox.sql("delete from relay.outbox where id = %s", first)
        before = dict(outbox.sql("select ctid::text, id from relay.outbox"))
        outbox.sql("vacuum full relay.outbox")
        after = dict(outbox.sql("select ctid::text, id from relay.outbox"))
        assert any(before.get(place) in good for place, id in after.items() if id in bad), "nothing changed places"
        outbox.broker.script(kinds={"bad": "retry"})
        wait_until(lambda: outbox.count(table="claims") == 0)
    assert set(outbox.broker.copies()) == set(good)
    assert outbox.sql("select id from relay.outbox order by id") == [(id,) for id in bad]


@pytest.mark.parametrize(
    "change",
    [
        "payload = '[1]'",
        "headers = '{}'",
        "run_at = now() + interval '1 second'",
        "run_at = now() - interval '1 second'",
        "sink = 'other'",
        "shard = 0",
    ],
)
def test_a_claimed_row_changed_by_hand_is_not_forgotten(outbox: Outbox, change: str) -> None:
    outbox.configure({"main": {}, "other": {}})
    outbox.broker.script(hang=True)
    with outbox.relay() as relay:
        ids = outbox.insert(3)
        wait_until(outbox.broker.calls)
        outbox.sql(f"update relay.outbox set {change} where id = %s", ids[1])
        outbox.broker.script()
        outbox.wait_until_empty(timeout=10)
        assert relay.healthy()
    assert set(outbox.broker.copies()) == set(ids)


def test_a_claimed_row_deleted_by_hand_hurts_no_other(outbox: Outbox) -> None:
    outbox.configure()
    outbox.broker.script(hang=True)
    with outbox.relay():
        ids = outbox.insert(3)
        wait_until(outbox.broker.calls)
        outbox.sql("delete from relay.outbox where id = %s", ids[1])
        outbox.broker.script()
        outbox.wait_until_empty(timeout=10)


def test_a_claim_deleted_by_hand_stops_nobody(outbox: Outbox) -> None:
    outbox.configure()
    outbox.broker.script(hang=True)
    with outbox.relay() as relay:
        outbox.insert(3)
        wait_until(outbox.broker.calls)
        outbox.sql("delete from relay.claims")
        outbox.broker.script()
        wait_until(lambda: relay.metric("relay_lease_lost_total") == 1)
        later = outbox.insert(2)
        wait_until(lambda: set(outbox.broker.copies()) >= set(later))


def test_a_row_locked_by_a_session_is_passed_by(outbox: Outbox) -> None:
    outbox.configure()
    ids = outbox.insert(3)
    with psycopg.connect(outbox.url) as holder:
        holder.execute("select from relay.outbox where id = %s for update", [ids[0]])
        with outbox.relay():
            wait_until(lambda: set(outbox.broker.copies()) == set(ids[1:]))
            holder.rollback()
            outbox.wait_until_empty()


def test_a_settle_that_waits_for_a_lock_costs_other_claims_nothing(outbox: Outbox) -> None:
    outbox.configure({"main": {}, "other": {}}, database={"timeout": "30s"})
    outbox.broker.script(hang=True)
    with psycopg.connect(outbox.url) as holder, outbox.relay() as relay:
        ids = outbox.insert(2) + outbox.insert(2, sink="other")
        wait_until(lambda: len(outbox.broker.calls()) == 2)
        holder.execute("select from relay.outbox where id = %s for update", [ids[0]])
        outbox.broker.script(hang="other")
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            # The lease is two seconds.
            assert outbox.count("sink = 'other' and locked_until > clock_timestamp()", table="claims") == 1
            time.sleep(0.1)
        holder.rollback()
        outbox.broker.script()
        outbox.wait_until_empty(timeout=10)
        assert relay.metric("relay_lease_lost_total") == 0
    assert outbox.broker.copies() == dict.fromkeys(ids, 1)


def test_ids_that_commit_out_of_order_are_all_found(outbox: Outbox) -> None:
    outbox.configure()
    with psycopg.connect(outbox.url) as slow, outbox.relay():
        slow.execute("insert into relay.outbox (kind, payload) values ('late', '1')")
        early = outbox.insert(100)
        wait_until(lambda: set(outbox.broker.copies()) == set(early))
        slow.commit()
        outbox.wait_until_empty()
    assert [delivery.kind for delivery in outbox.broker.deliveries()][-1] == "late"
    assert len(outbox.broker.copies()) == 101


def test_a_paused_sink_is_not_claimed_for(outbox: Outbox) -> None:
    outbox.configure({"main": {}, "other": {}}, routes=[{"kind": "*", "sink": "main"}, {"kind": "*", "sink": "other"}])
    with outbox.relay():
        assert outbox.run_relay("pause", "main", "--reason", "as a test").returncode == 0
        outbox.insert(5)
        wait_until(lambda: len(outbox.broker.deliveries()) == 5)
        assert outbox.run_relay("resume", "main").returncode == 0
        outbox.wait_until_empty()
    assert {(delivery.sink, delivery.attempts) for delivery in outbox.broker.deliveries()} == {
        ("main", 1),
        ("other", 1),
    }
    assert len(outbox.broker.deliveries()) == 10
