"""`--http`: health, readiness, metrics."""

from __future__ import annotations

import resource
import socket
import time
from contextlib import ExitStack, suppress
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry

from relay.telemetry.http import HttpServer
from tests.harness.outbox import Outbox, Relay
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


def test_one_relay_counts_what_waits_for_all(outbox: Outbox) -> None:
    """A sum over all relays must be right, and the database must not count for each of them. When the one that counts
    is killed, another one does it."""
    outbox.configure({"main": {}, "other": {}}, routes=[{"kind": "made", "sink": "main"}])
    outbox.sql("update relay.sinks set paused_at = now(), paused_reason = 'test' where name = 'main'")
    outbox.insert(7, run_at="2999-01-01")
    outbox.insert(5, created_at="2020-01-01")
    outbox.insert(2, kind="no route")

    def seen(relay: Relay) -> list[float]:
        states = ("due", "later", "dead")
        return [relay.metric("relay_backlog_messages", sink="main", state=state) for state in states]

    with outbox.relay() as first:
        wait_until(lambda: seen(first) == [5, 7, 0], timeout=20, what="the first relay counting")
        assert first.metric("relay_backlog_messages", sink="unrouted") == 2
        assert first.metric("relay_backlog_oldest_due_seconds", sink="main") > 1e7
        assert first.metric("relay_sink_paused", sink="main") == 1
        assert first.metric("relay_sink_paused", sink="other") == 0
        assert first.metric("relay_sink_circuit_open") == 0
        assert first.metric("relay_build_info") == 1
        with outbox.relay() as second:
            wait_until(lambda: first.metric("relay_sink_relays", sink="main") == 2, timeout=20)
            assert "relay_backlog_messages{" not in second.get("metrics")
            first.kill()
            wait_until(lambda: seen(second) == [5, 7, 0], timeout=20, what="the second relay counting")
            outbox.sql("update relay.sinks set paused_at = null, paused_reason = null")
            wait_until(lambda: seen(second) == [0, 7, 0], timeout=20, what="the delivery being counted")
            assert second.metric("relay_last_delivery_timestamp_seconds", sink="main") > 1e9


def test_metrics_count_the_clients_that_a_sink_replaced(outbox: Outbox) -> None:
    """The sink counts them since it was made, and is asked after each claim. In the same way it may begin anew."""
    outbox.configure()
    with outbox.relay() as relay:
        assert relay.metric("relay_clients_replaced_total", sink="main") == 0
        for replaced, total in ((2, 2), (2, 2), (3, 3), (1, 4)):
            outbox.broker.script(replaced=replaced)
            outbox.insert()
            outbox.wait_until_empty()
            wait_until(lambda: relay.metric("relay_clients_replaced_total", sink="main") == total)  # noqa: B023


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


def test_hundreds_of_clients_that_never_end_a_request_take_nothing_from_the_relay(outbox: Outbox) -> None:
    """Silent ones, ones that drip. The same kind: whatever else a stranger may open for nothing."""
    outbox.configure()
    with outbox.relay() as relay, ExitStack() as stack:
        resource.prlimit(relay.pid, resource.RLIMIT_NOFILE, (96, 96))
        strangers = [stack.enter_context(socket.create_connection((LOCALHOST, relay.port))) for _ in range(300)]
        for stranger in strangers[-40:]:
            with suppress(OSError):
                stranger.sendall(b"GET /healthz HTTP/1.1\r\nX-Drip: ")
        outbox.insert(50)
        outbox.wait_until_empty()
        assert relay.healthy()
        assert relay.ready()

        def dripping() -> int:
            """How many still have their connection after another byte each."""
            return sum(_takes(stranger, b".") for stranger in strangers[-20:])

        wait_until(lambda: dripping() == 0, timeout=30, interval=0.5, what="the end of requests that drip")
        assert relay.healthy()


def _takes(client: socket.socket, data: bytes) -> bool:
    client.setblocking(False)
    try:
        client.send(data)
        return client.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def test_an_ipv6_address() -> None:
    server = HttpServer("[::1]:0", CollectorRegistry(), lambda: True, lambda: False)
    try:
        with urlopen(f"http://[::1]:{server.port}/healthz", timeout=5) as answer:
            assert answer.status == 200
    finally:
        server.close()


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
