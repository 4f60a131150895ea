"""PostgreSQL itself crashes: what a relay relies on after that was on disk, whatever the database's settings."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from tests.harness.outbox import Outbox
from tests.harness.scripted import ScriptedBroker
from tests.servers.base import wait_until
from tests.servers.postgres import migrate, new_cluster
from tests.servers.redis import run_redis

LAZY: dict[str, str | int] = {"synchronous_commit": "off", "wal_writer_delay": "10s", "wal_writer_flush_after": "1GB"}
"""Commits reach the disk as late as they can, so that a crash loses the most."""
MESSAGES = 9000


def test_a_crash_makes_no_copies_where_commits_are_not_waited_for(tmp_path: Path) -> None:
    """A claim that a crash has undone leaves nobody who would ask the fence about it. So it is with every commit that
    says what was sent: a settle, a token that is kept."""
    (tmp_path / "broker").mkdir()
    with run_redis() as redis, new_cluster() as cluster:
        with cluster.run(**LAZY) as server:
            migrate(cluster.url())
            outbox = Outbox(cluster.url(), tmp_path, ScriptedBroker(tmp_path / "broker"))
            outbox.configure({"main": {"type": "redis-stream", "url": redis.url, "stream": "s"}})
            outbox.sql(
                "begin; set local synchronous_commit = on; insert into relay.outbox (kind, payload)"
                f" select 'made', '{{}}' from generate_series(1, {MESSAGES}); commit"
            )
            with outbox.relay() as relay:
                wait_until(lambda: redis.client().xlen("s") > MESSAGES / 4, interval=0.01)
                server.kill()
                wait_until(lambda: not relay.ready())
                with cluster.run(**LAZY):
                    wait_until(relay.ready, timeout=30)
                    outbox.wait_until_empty(timeout=60)
        entries: Any = redis.client().xrange("s")
        copies = Counter(fields[b"message_id"] for _, fields in entries)
    assert len(copies) == MESSAGES
    assert set(copies.values()) == {1}
