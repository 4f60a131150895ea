"""The connection that notifications come by dies without a word: polling goes on, and it is found out."""

from __future__ import annotations

import time

from tests.harness.outbox import Outbox
from tests.servers.base import wait_until
from tests.servers.proxy import FaultProxy

POLL_S = 1.0


def slowest_of(outbox: Outbox, seconds: float) -> float:
    """The longest time from insert to delivery of messages written now and then."""
    deadline = time.monotonic() + seconds
    outbox.broker.forget()
    while time.monotonic() < deadline:
        outbox.insert_timed()
        time.sleep(1.0)
    wait_until(outbox.is_empty)
    return max(delivery.late for delivery in outbox.broker.deliveries())


def test_a_silent_listener_is_found_out_and_replaced(outbox: Outbox) -> None:
    with FaultProxy.before(outbox.url) as proxy:
        outbox.configure(database={"timeout": "2s", "listen_url": proxy.url(outbox.url)})
        with outbox.relay() as relay:
            wait_until(lambda: relay.metric("relay_listener_up") == 1)
            proxy.stall()
            silent_at = time.monotonic()
            assert slowest_of(outbox, 5) < POLL_S + 2
            wait_until(lambda: relay.metric("relay_listener_up") == 0, timeout=20)
            assert time.monotonic() - silent_at < 20
            proxy.resume()
            wait_until(lambda: relay.metric("relay_listener_up") == 1, timeout=10)
            time.sleep(2)
            assert slowest_of(outbox, 3) < 0.3


def test_a_first_reconnect_that_fails_is_not_the_last(outbox: Outbox) -> None:
    with FaultProxy.before(outbox.url) as proxy:
        outbox.configure(database={"timeout": "2s", "listen_url": proxy.url(outbox.url)})
        with outbox.relay() as relay:
            wait_until(lambda: relay.metric("relay_listener_up") == 1)
            proxy.refuse()
            assert outbox.end_sessions("listener") == 1
            wait_until(lambda: relay.metric("relay_listener_up") == 0, timeout=5)
            time.sleep(3)
            assert slowest_of(outbox, 2) < POLL_S + 2
            assert len(relay.events("notifications do not arrive; polling")) == 1
            proxy.resume()
            wait_until(lambda: relay.metric("relay_listener_up") == 1, timeout=15)
