"""A writer keeps a transaction open that writes a dedupe_key. Whoever would wait for it leaves that message alone.

The same kind: whatever an operator or a relay writes on behalf of many, and one writer can hold up.
"""

from __future__ import annotations

import time

import psycopg
import pytest

from tests.harness.outbox import Outbox
from tests.servers.base import wait_until

pytestmark = pytest.mark.full


def test_relays_route_again_what_nobody_holds(outbox: Outbox) -> None:
    outbox.configure()
    outbox.sql("delete from relay.routes")
    held = outbox.insert(kind="late", dedupe_key="held")
    others = outbox.insert(5, kind="late") + outbox.insert(kind="late", dedupe_key="free")
    with psycopg.connect(outbox.url) as writer:
        writer.execute("insert into relay.outbox (kind, payload, dedupe_key, sink) values ('x', '1', 'held', 'main')")
        with outbox.relay() as relay:
            outbox.sql("insert into relay.routes (kind, sink) values ('late', 'main')")
            soon = outbox.insert(kind="made", run_at="2000-01-01", sink="main")
            wait_until(
                lambda: outbox.sql("select id from relay.outbox order by id") == [(held[0],)],
                timeout=40,
                what="all but the held message being delivered",
            )
            assert not relay.events("maintenance failed")
            writer.rollback()
            outbox.wait_until_empty(timeout=40)
    delivered = list(outbox.broker.copies().elements())
    assert sorted(delivered) == sorted([*held, *others, *soon])


def test_requeue_leaves_out_what_somebody_holds(outbox: Outbox) -> None:
    outbox.configure(max_attempts=1)
    outbox.broker.script(kinds={"bad": "reject"})
    dead = outbox.insert(kind="bad", dedupe_key="held") + outbox.insert(20, kind="bad")
    with outbox.relay():
        outbox.wait_until_empty()
    with psycopg.connect(outbox.url) as writer:
        writer.execute("insert into relay.outbox (kind, payload, dedupe_key, sink) values ('x', '1', 'held', 'main')")
        started = time.monotonic()
        done = outbox.run_relay("dead", "requeue", "--all", "--yes")
        assert time.monotonic() - started < 20
        assert done.returncode == 0, done.stderr
        assert "requeued 20 messages" in done.stdout
        assert "1 message stayed dead" in done.stdout
        assert outbox.sql("select id from relay.dead") == [(dead[0],)]
        writer.rollback()


def test_names_of_sinks_fill_no_status(outbox: Outbox) -> None:
    """Nor may a key of a strict sink be a lock of ours."""
    outbox.configure({"main": {}, "strict": {"order": "key", "shards": 2, "strict": True}})
    outbox.sql(
        "insert into relay.outbox (kind, payload, sink) select 'x', '1', 's' || n from generate_series(1, 2000) n"
    )
    assert len(outbox.run_relay("status", "--json").stdout) < 100_000
    with psycopg.connect(outbox.url) as writer:
        for key in ("relay.compile_routes", "relay.migrations", "relay.set_identities"):
            writer.execute(
                "insert into relay.outbox (kind, payload, sink, key) values ('x', '1', 'strict', %s)", (key,)
            )
        with psycopg.connect(outbox.url, autocommit=True, options="-c lock_timeout=5s") as operator:
            operator.execute("update relay.routes set kind = kind where false")  # compiles the routes
            assert operator.execute("select relay.set_identities()").fetchone() == (None,)
        done = outbox.run_relay("migrate")
        assert done.returncode == 0, done.stderr
        writer.rollback()
