"""Attempts and bases so high that a power would overflow: the next try lies ahead, and no further than the cap."""

from __future__ import annotations

import pytest

from tests.harness.outbox import Outbox
from tests.servers.base import wait_until

HIGHEST = 2**31 - 1


@pytest.mark.parametrize("order", ["none", "key"])
@pytest.mark.parametrize(("base", "cap_s"), [("1s", 3600), ("300000000s", 300_000_000)])
def test_the_next_try_is_never_in_the_past(outbox: Outbox, order: str, base: str, cap_s: int) -> None:
    outbox.configure(order=order, backoff={"base": base, "max": f"{cap_s}s"})
    outbox.broker.script(kinds={"made": "retry"})
    for attempts in (64, 1025, HIGHEST - 1, HIGHEST):
        outbox.insert(max_attempts=HIGHEST, key=f"{attempts}", sink="main")
        outbox.sql("update relay.outbox set attempts = %s where key = %s", attempts, f"{attempts}")
    with outbox.relay() as relay:
        wait_until(lambda: outbox.count("run_at is not null") == 2 and outbox.count(table="dead") == 2)
        assert [event for event in relay.events() if event["level"] == "error"] == []
    assert outbox.sql("select attempts from relay.dead") == [(HIGHEST,)] * 2
    assert outbox.sql("select attempts from relay.outbox order by id") == [(65,), (1026,)]
    when, table = ("run_at", "outbox") if order == "none" else ("retry_at", "stuck_keys")
    # Full jitter: one in a million is less than so much ahead.
    waits = outbox.sql(f"select extract(epoch from {when} - now())::float8 from relay.{table}")
    assert len(waits) == 2
    assert all(-20 < wait <= cap_s for (wait,) in waits)
    assert max(wait for (wait,) in waits) > cap_s / 1000
