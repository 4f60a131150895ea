"""A send that takes longer than a lease: the lease is kept alive beside it, or its loss is noticed."""

from __future__ import annotations

import signal
import time

from tests.harness.outbox import Outbox
from tests.servers.base import wait_until

LEASE_S = 2.0


def remaining_s(outbox: Outbox) -> float | None:
    """How long the shortest live claim still holds."""
    seconds: float | None = outbox.sql(
        "select extract(epoch from min(locked_until) - clock_timestamp())::float8 from relay.claims"
    )[0][0]
    return seconds


def test_a_slow_send_keeps_its_lease(outbox: Outbox) -> None:
    outbox.configure(lease="2s", batch_messages=20)
    outbox.broker.script(each=0.25)
    ids = outbox.insert(20)
    shortest = LEASE_S
    with outbox.relay() as one, outbox.relay() as other:
        deadline = time.monotonic() + 15
        while not outbox.is_empty() and time.monotonic() < deadline:
            shortest = min(shortest, remaining_s(outbox) or LEASE_S)
            time.sleep(0.05)
        assert outbox.is_empty()
        assert one.metric("relay_lease_lost_total") + other.metric("relay_lease_lost_total") == 0
    assert outbox.broker.copies() == dict.fromkeys(ids, 1)
    assert shortest > LEASE_S * 2 / 3 - 0.3, "renewals must come at a third of the lease"


def test_computing_in_the_sink_starves_no_heartbeat(outbox: Outbox) -> None:
    outbox.configure(lease="2s")
    outbox.broker.script(burn=5.0)
    ids = outbox.insert(20)
    with outbox.relay() as one, outbox.relay() as other:
        outbox.wait_until_empty()
        assert one.metric("relay_lease_lost_total") + other.metric("relay_lease_lost_total") == 0
    assert outbox.broker.copies() == dict.fromkeys(ids, 1)


def test_a_relay_that_slept_past_its_lease_sends_nothing_more(outbox: Outbox) -> None:
    outbox.configure(lease="2s", batch_messages=20)
    outbox.broker.script(each=0.2)
    with outbox.relay() as sleeper:
        ids = outbox.insert(20)
        wait_until(lambda: len(outbox.broker.deliveries()) >= 3)
        sleeper.signal(signal.SIGSTOP)
        before = {delivery.id for delivery in outbox.broker.deliveries()}
        outbox.broker.script()
        with outbox.relay() as heir:
            outbox.wait_until_empty(timeout=LEASE_S + 3)
            taken = len(outbox.broker.deliveries())
            sleeper.signal(signal.SIGCONT)
            wait_until(lambda: sleeper.metric("relay_lease_lost_total") == 1)
            assert heir.metric("relay_reaped_total") == 20
        assert len(outbox.broker.deliveries()) == taken, "the one that slept went on sending"
        later = outbox.insert(5)
        outbox.wait_until_empty()
    copies = outbox.broker.copies()
    assert copies == {**dict.fromkeys(ids + later, 1), **dict.fromkeys(before, 2)}
    assert outbox.count(table="dead") == 0
