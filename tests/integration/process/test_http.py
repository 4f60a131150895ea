"""`--http`: health, readiness, metrics."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack

import pytest

from tests.harness.outbox import Outbox
from tests.servers.base import LOCALHOST, wait_until
from tests.servers.proxy import FaultProxy

pytestmark = pytest.mark.full


def test_metrics_count_every_message_once(outbox: Outbox) -> None:
    outbox.configure(max_attempts=2)
    outbox.broker.script(kinds={"bad": "retry", "worse": "reject"})
    with outbox.relay() as relay:
        outbox.insert(30)
        outbox.insert(3, kind="bad")
        outbox.insert(2, kind="worse")
        outbox.wait_until_empty()
        wait_until(lambda: relay.metric("relay_messages_total", outcome="dead") == 5)
        assert relay.metric("relay_messages_total", sink="main", outcome="delivered") == 30
        assert relay.metric("relay_messages_total", sink="main", outcome="retried") == 3
        assert relay.metric("relay_send_seconds_count", sink="main") == len(outbox.broker.calls())
        wait_until(lambda: relay.metric("relay_listener_up") == 1)


def test_a_client_that_says_nothing_blocks_no_other(outbox: Outbox) -> None:
    outbox.configure()
    with outbox.relay() as relay, ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(socket.create_connection((LOCALHOST, relay.port)))
        started = time.monotonic()
        assert relay.healthy()
        assert relay.ready()
        assert "relay_messages" in relay.get("metrics")
        assert time.monotonic() - started < 10


def test_readiness_is_the_databases_and_health_is_not(outbox: Outbox) -> None:
    outbox.configure(database={"timeout": "1s"})
    with FaultProxy.before(outbox.url) as proxy, outbox.relay(url=proxy.url(outbox.url)) as relay:
        proxy.refuse()
        proxy.cut()
        wait_until(lambda: not relay.ready(), timeout=5)
        assert relay.healthy()
        proxy.resume()
        wait_until(relay.ready, timeout=10)
        assert relay.get("nonsense")


@pytest.mark.parametrize("address", ["9090", "127.0.0.1:http", "127.0.0.1:70000", "no.such.host.invalid:9090"])
def test_a_wrong_address_is_a_wrong_usage(outbox: Outbox, address: str) -> None:
    outbox.configure()
    done = outbox.run_relay("run", "--http", address)
    assert done.returncode == 2
    assert "--http" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_taken_address_is_named(outbox: Outbox) -> None:
    outbox.configure()
    with outbox.relay() as relay:
        done = outbox.run_relay("run", "--http", f"{LOCALHOST}:{relay.port}")
    assert done.returncode == 2
    assert str(relay.port) in done.stderr
