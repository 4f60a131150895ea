"""A relay whose clock is ten minutes wrong: due times, leases and backoffs go by the database's."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.harness.outbox import Outbox
from tests.servers.base import ServerUnavailable, wait_until
from tests.servers.packages import apt_install


def faketime() -> str:
    """The library that lies about the time."""
    apt_install("faketime")
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if not found:
        raise ServerUnavailable("libfaketime", "apt install faketime", "it was not where Debian puts it")
    return str(found[0])


@pytest.mark.parametrize("order", ["none", "key"])
@pytest.mark.parametrize("offset_s", [600, -600])
def test_a_relay_with_a_wrong_clock(outbox: Outbox, offset_s: int, order: str) -> None:
    outbox.configure(order=order, lease="5s", backoff={"base": "60s", "max": "60s"})
    outbox.environment |= {
        "LD_PRELOAD": faketime(),
        "FAKETIME": f"{offset_s:+d}s",
        # No machine's steady clock is wrong; and how long to wait is told by it.
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    outbox.broker.script(kinds={"bad": "retry"})
    with outbox.relay(timeout=40):
        outbox.insert_timed()
        outbox.insert_timed(2.0)
        wait_until(lambda: len(outbox.broker.deliveries()) == 2, timeout=8)
        at_once, later = outbox.broker.deliveries()
        assert abs(at_once.at - time.time() - offset_s) < 20, "the relay's clock is wrong"
        assert at_once.late - offset_s < 2
        assert -0.1 < later.late - offset_s < 2

        outbox.insert(kind="bad", key="k")
        wait_until(lambda: outbox.count("run_at is not null") == 1)
        when, table = ("run_at", "outbox") if order == "none" else ("retry_at", "stuck_keys")
        ((wait,),) = outbox.sql(f"select extract(epoch from {when} - clock_timestamp())::float8 from relay.{table}")
        assert -5 < wait <= 60

        # Computing, as under this library a short sleep of Python's is an error.
        outbox.broker.script(burn=4.0)
        outbox.insert()
        wait_until(lambda: outbox.count(table="claims") == 1)
        time.sleep(1)
        ((left,),) = outbox.sql("select extract(epoch from locked_until - clock_timestamp())::float8 from relay.claims")
        assert 0 < left <= 5
        wait_until(lambda: len(outbox.broker.deliveries()) == 3)
