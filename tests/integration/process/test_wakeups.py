"""How soon a relay finds work: by notification, by polling, by the clock."""

from __future__ import annotations

import statistics
import time

import psycopg
import pytest

from tests.harness.outbox import Outbox
from tests.servers.base import wait_until

pytestmark = pytest.mark.full


def latencies(outbox: Outbox, count: int, gap: float) -> list[float]:
    """Seconds from insert to delivery of messages written one by one, with a pause after each."""
    outbox.broker.forget()
    for number in range(count):
        outbox.insert_timed()
        wait_until(lambda: len(outbox.broker.deliveries()) > number, interval=0.002)  # noqa: B023
        time.sleep(gap)
    return [delivery.late for delivery in outbox.broker.deliveries()]


def is_idle(outbox: Outbox) -> bool:
    return outbox.count("idle_until > clock_timestamp()", table="relays") == 1


def test_an_idle_relay_is_woken_within_milliseconds(outbox: Outbox) -> None:
    outbox.configure()
    with outbox.relay():
        wait_until(lambda: is_idle(outbox))
        time.sleep(3)
        taken = latencies(outbox, 12, gap=0.3)
    assert statistics.median(taken) < 0.03, taken
    assert max(taken) < 0.5, taken


def test_polling_alone_is_a_fraction_of_the_gap(outbox: Outbox) -> None:
    outbox.configure(database={"notify": False})
    with outbox.relay():
        quick = latencies(outbox, 30, gap=0.02)
        assert statistics.median(quick) < 0.03, quick
        time.sleep(3)
        slow = latencies(outbox, 4, gap=1.0)
        assert max(slow) < 1.2, slow
        assert not is_idle(outbox)


def test_writers_notify_only_while_somebody_waits(outbox: Outbox) -> None:
    outbox.configure(database={"notify": False})
    with psycopg.connect(outbox.url, autocommit=True) as ear:
        ear.execute("listen relay")
        with outbox.relay():
            outbox.insert(3)
            outbox.wait_until_empty()
            assert list(ear.notifies(timeout=0.5)) == []
        outbox.configure()
        with outbox.relay():
            wait_until(lambda: is_idle(outbox))
            outbox.insert(2000)
            (notification,) = ear.notifies(timeout=2, stop_after=1)
            assert notification.payload == ""
            outbox.wait_until_empty()
        # It said goodbye.
        list(ear.notifies(timeout=0.5))
        outbox.insert(3)
        assert list(ear.notifies(timeout=0.5)) == []


@pytest.mark.parametrize("notify", [True, False])
def test_a_scheduled_message_is_on_time(outbox: Outbox, notify: bool) -> None:
    outbox.configure(database={"notify": notify})
    with outbox.relay():
        time.sleep(1.5)
        for delay in (0.3, 1.5, 2.5, 2.5):
            outbox.insert_timed(delay)
        outbox.insert(1, run_at="9999-12-31")
        assert outbox.count("run_at is not null") == 5
        wait_until(lambda: len(outbox.broker.deliveries()) == 4)
    late = [delivery.late for delivery in outbox.broker.deliveries()]
    assert all(-0.005 <= each < 1.1 for each in late), late
    assert outbox.count() == 1


def test_many_messages_that_are_due_at_once_all_leave(outbox: Outbox) -> None:
    outbox.configure(batch_messages=500)
    with outbox.relay(), outbox.relay():
        outbox.sql(
            "insert into relay.outbox (kind, payload, run_at)"
            " select 'later', '1', now() + interval '1 second' from generate_series(1, 5000)"
        )
        outbox.wait_until_empty(timeout=12)
    copies = outbox.broker.copies()
    assert len(copies) == 5000
    assert set(copies.values()) == {1}
