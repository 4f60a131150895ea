"""The database is away for longer than any patience: the relay lives, says that it is not ready, and comes back."""

from __future__ import annotations

import time

import pytest

from tests.harness.outbox import Outbox
from tests.servers.base import wait_until
from tests.servers.proxy import FaultProxy


@pytest.mark.parametrize("kind", ["refused", "silent", "flapping"])
def test_work_resumes_within_ten_seconds(outbox: Outbox, kind: str) -> None:
    outbox.configure(database={"timeout": "1s"})
    outbox.broker.script(each=0.01)
    with FaultProxy.before(outbox.url) as proxy, outbox.relay(url=proxy.url(outbox.url)) as relay:
        outbox.insert(200)
        wait_until(outbox.broker.calls)
        away_until = time.monotonic() + 8
        if kind == "refused":
            proxy.refuse()
            proxy.cut()
        elif kind == "silent":
            proxy.stall()
        wait_until(lambda: kind == "flapping" or not relay.ready(), timeout=5)
        while time.monotonic() < away_until:
            if kind == "flapping":
                proxy.cut(reset=time.monotonic_ns() % 2 == 0)
            time.sleep(0.3)
        assert relay.healthy()
        # Without a working database nothing new is claimed, whatever the broker says.
        assert kind == "flapping" or len(outbox.broker.calls()) <= 3
        before = len(outbox.broker.calls())
        proxy.resume()
        wait_until(lambda: len(outbox.broker.calls()) > before or outbox.is_empty(), timeout=10)
        wait_until(relay.ready, timeout=10)
        outbox.insert(5)
        outbox.wait_until_empty()
        assert len(relay.events("database refused")) < 60
    assert len(outbox.broker.copies()) == 205
    assert outbox.count(table="dead") == 0


def test_a_relay_starts_before_its_database(outbox: Outbox) -> None:
    outbox.configure()
    with FaultProxy.before(outbox.url) as proxy:
        proxy.refuse()
        with outbox.relay(wait=False, url=proxy.url(outbox.url)) as relay:
            time.sleep(2)
            assert relay.healthy()
            assert not relay.ready()
            assert len(relay.events("waiting for the database")) == 1
            proxy.resume()
            wait_until(relay.ready, timeout=10)
            outbox.insert(5)
            outbox.wait_until_empty()
