"""PgBouncer in transaction mode in front of everything."""

from __future__ import annotations

import time
from typing import Any

import psycopg
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


def test_a_locked_table_does_not_fill_the_server_with_statements_that_nobody_waits_for(outbox: Outbox) -> None:
    """A pooler passes no bound on to the server: what a relay gives up would wait there on, and keep a connection that
    other applications need. So with whatever else makes a statement wait: a frozen disk, a session that is stopped."""
    waiting = (
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        " and query_start < now() - interval '2.5 seconds'"
    )
    with run_pgbouncer("1.26", outbox.url, pool_size=8) as (pooled, _):
        outbox.configure(workers=3, lease="30s", database={"timeout": "2s"})
        with outbox.relay(url=pooled, listen_url=outbox.url):
            with psycopg.connect(outbox.url) as holder:
                holder.execute("lock table relay.outbox in access exclusive mode")
                seen = []
                until = time.monotonic() + 12
                while time.monotonic() < until:
                    seen.append(outbox.sql(waiting)[0][0])
                    with psycopg.connect(pooled, autocommit=True, connect_timeout=5) as another:
                        another.execute("select 1")
                    time.sleep(0.2)
                holder.rollback()
            assert max(seen) <= 1, f"statements that were given up: {seen}"
            outbox.insert(100)
            outbox.wait_until_empty(timeout=30)
