"""PgBouncer in transaction mode in front of everything."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.outbox import Outbox
from tests.servers.base import wait_until
from tests.servers.pgbouncer import run_pgbouncer

pytestmark = pytest.mark.full
LENIENT = {"ignore_startup_parameters": "extra_float_digits, options"}


@pytest.mark.parametrize(
    ("version", "settings", "listen"),
    [
        ("1.18", {}, "direct"),
        ("1.18", LENIENT, "none"),
        ("1.24", {}, "pooled"),
        ("1.26", LENIENT, "pooled"),
        ("1.26", {}, "none"),
    ],
)
def test_everything_is_delivered_without_an_error(
    outbox: Outbox, version: str, settings: dict[str, Any], listen: str
) -> None:
    with run_pgbouncer(version, outbox.url, **settings) as (pooled, _):
        outbox.configure(batch_messages=50, workers=2)
        outbox.broker.script(kinds={"bad": "retry"})
        addresses: dict[str, Any] = {"url": pooled}
        if listen != "none":
            addresses["listen_url"] = outbox.url if listen == "direct" else pooled
        with outbox.relay(**addresses) as one, outbox.relay(**addresses) as other:
            ids = outbox.insert(500)
            outbox.insert(10, kind="bad", max_attempts=3)
            ids += outbox.insert(500)
            outbox.wait_until_empty()
            for relay in (one, other):
                assert [event for event in relay.events() if event["level"] == "error"] == []
                if listen == "direct":
                    wait_until(lambda: relay.metric("relay_listener_up") == 1)  # noqa: B023
                else:
                    wait_until(lambda: relay.events("notifications do not arrive; polling"), timeout=15)  # noqa: B023
                    assert relay.metric("relay_listener_up") == 0
    assert outbox.broker.copies() == dict.fromkeys(ids, 1)
    assert outbox.count("attempts = 3", table="dead") == 10
