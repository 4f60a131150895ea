"""The end of a relay: what is claimed is finished or given back, and the process goes in time."""

from __future__ import annotations

import json
import signal
import time

import pytest

from tests.harness.outbox import Outbox
from tests.servers.base import wait_until
from tests.servers.proxy import FaultProxy


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_first_signal_finishes_what_is_claimed(outbox: Outbox, number: signal.Signals) -> None:
    outbox.configure(batch_messages=436)
    outbox.broker.script(delay=2.0)
    with outbox.relay() as relay:
        ids = outbox.insert(436)
        wait_until(outbox.broker.calls)
        more = outbox.insert(10)
        relay.signal(number)
        assert relay.exit_code() == 0
        assert relay.events("draining")[0]["messages"] == 436
    assert outbox.broker.copies() == dict.fromkeys(ids, 1)
    assert [row[0] for row in outbox.sql("select id from relay.outbox order by id")] == more
    assert outbox.count("claim_token is null and attempts = 0") == 10
    assert outbox.count(table="claims") == 0
    assert outbox.count(table="relays") == 0


def test_an_idle_relay_goes_at_once(outbox: Outbox) -> None:
    outbox.configure(workers=3)
    with outbox.relay() as relay:
        time.sleep(2)
        asked_at = time.monotonic()
        relay.signal(signal.SIGTERM)
        assert relay.exit_code() == 0
        assert time.monotonic() - asked_at < 5


def test_after_the_grace_messages_are_given_back(outbox: Outbox) -> None:
    outbox.configure(lease="30s", batch_messages=100)
    outbox.broker.script(hang=True)
    with outbox.relay("--grace", "1s") as first:
        ids = outbox.insert(100)
        wait_until(outbox.broker.calls)
        with outbox.relay() as second:
            asked_at = time.monotonic()
            first.signal(signal.SIGTERM)
            wait_until(lambda: len(outbox.broker.calls()) == 2, timeout=15)
            assert time.monotonic() - asked_at < 15, "another one must not wait for the lease"
            assert first.exit_code() == 0
            assert outbox.count("attempts = 1") == 100
            outbox.broker.script()
            outbox.wait_until_empty()
            assert second.healthy()
    assert outbox.broker.copies() == dict.fromkeys(ids, 1)


def test_a_second_signal_ends_it_at_once(outbox: Outbox) -> None:
    outbox.configure({"main": {"workers": 4}, "other": {}}, lease="30s")
    outbox.broker.script(hang=True)
    with outbox.relay() as relay:
        outbox.insert(80)
        wait_until(lambda: len(outbox.broker.calls()) == 4)
        relay.signal(signal.SIGTERM)
        wait_until(lambda: relay.events("draining"))
        time.sleep(0.5)
        asked_at = time.monotonic()
        relay.signal(signal.SIGTERM)
        assert relay.exit_code() == 0
        assert time.monotonic() - asked_at < 5
    assert outbox.count("claim_token is null and attempts = 0") == 80
    assert outbox.count(table="claims") == 0


def test_a_stop_while_the_broker_is_down(outbox: Outbox) -> None:
    outbox.configure(max_attempts=1)
    outbox.broker.script(batch={"do": "unavailable", "unknown": True})
    with outbox.relay() as relay:
        outbox.insert(50)
        time.sleep(1.5)
        relay.signal(signal.SIGTERM)
        assert relay.exit_code(timeout=10) == 0
    assert outbox.count("claim_token is null and attempts = 0") == 50


def test_a_stop_while_the_database_is_away(outbox: Outbox) -> None:
    outbox.configure(workers=3, database={"timeout": "30s"})
    outbox.broker.script(hang=True)
    with FaultProxy.before(outbox.url) as proxy, outbox.relay("--grace", "2s", url=proxy.url(outbox.url)) as relay:
        outbox.insert(60)
        wait_until(lambda: len(outbox.broker.calls()) == 3)
        proxy.stall()
        outbox.broker.script()
        time.sleep(0.5)
        asked_at = time.monotonic()
        relay.signal(signal.SIGTERM)
        assert relay.exit_code(timeout=20) == 0
        assert time.monotonic() - asked_at < 2 + 12


def test_a_stop_while_it_waits_for_the_database_to_appear(outbox: Outbox) -> None:
    outbox.configure(database={"timeout": "30s"})
    with FaultProxy.before(outbox.url) as proxy:
        proxy.stall()
        with outbox.relay(wait=False, url=proxy.url(outbox.url)) as relay:
            wait_until(lambda: proxy.accepted)
            asked_at = time.monotonic()
            relay.signal(signal.SIGTERM)
            assert relay.exit_code(timeout=20) == 0
            assert time.monotonic() - asked_at < 10


def test_draining_ends_by_itself(outbox: Outbox) -> None:
    outbox.configure(backoff={"base": "200ms", "max": "500ms"}, max_attempts=3)
    outbox.broker.script(kinds={"bad": "retry"}, each=0.002)
    outbox.insert(500)
    outbox.insert(3, run_at="2999-01-01")
    done = outbox.run_relay("run", "--drain")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stderr.splitlines()[-1])["delivered"] == 500
    assert len(outbox.broker.copies()) == 500
    assert outbox.count("run_at is not null") == 3
    assert outbox.count() == 3


def test_draining_waits_for_what_another_relay_holds(outbox: Outbox) -> None:
    outbox.configure(lease="1s", send_timeout="500ms")
    outbox.broker.script(hang=True)
    with outbox.relay() as other:
        outbox.insert(5)
        wait_until(outbox.broker.calls)
        other.kill()
    outbox.broker.script()
    done = outbox.run_relay("run", "--drain")
    assert done.returncode == 0, done.stderr
    assert outbox.is_empty()


def test_draining_nothing_ends_even_if_the_broker_is_down(outbox: Outbox) -> None:
    outbox.configure()
    outbox.broker.script(open={"do": "unavailable"})
    done = outbox.run_relay("run", "--drain", timeout=10)
    assert done.returncode == 0, done.stderr


def test_draining_says_that_it_waits_for_a_paused_sink(outbox: Outbox) -> None:
    outbox.configure()
    outbox.insert(5)
    assert outbox.run_relay("pause", "main", "--reason", "a move").returncode == 0
    with outbox.relay("--drain") as relay:
        wait_until(lambda: relay.events("waiting for a paused sink"))
        assert relay.events("waiting for a paused sink")[0]["reason"] == "a move"
        assert outbox.run_relay("resume", "main").returncode == 0
        assert relay.exit_code() == 0
        assert len(relay.events("waiting for a paused sink")) == 1
    assert outbox.is_empty()
