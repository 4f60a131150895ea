"""A planned switch-over: the server that was left lives on, read-only, and lets its sessions hear themselves.

The same goes wrong with every connection that only reads or listens: nothing that it does is refused.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from tests.harness.outbox import Outbox
from tests.harness.scripted import ScriptedBroker
from tests.servers.base import LOCALHOST, wait_until
from tests.servers.postgres import PostgresCluster, migrate, new_cluster
from tests.servers.proxy import FaultProxy

pytestmark = pytest.mark.full

SESSIONS = "select count(*) from pg_stat_activity where application_name like 'outbox-relay%'"
LISTENS = f"{SESSIONS} and application_name like '%% listener %%'"


def count(cluster: PostgresCluster, sql: str) -> int:
    with psycopg.connect(cluster.url(), autocommit=True) as conn:
        row = conn.execute(sql.replace("%%", "%").encode()).fetchone()
        return int(row[0]) if row else 0


def test_every_session_leaves_a_server_that_became_read_only(tmp_path: Path) -> None:
    with ExitStack() as stack:
        old, new = (stack.enter_context(new_cluster()) for _ in range(2))
        broker = ScriptedBroker(tmp_path / "broker")
        broker.folder.mkdir()
        for cluster in (new, old):
            stack.enter_context(cluster.run())
            migrate(cluster.url())
        before, after = (Outbox(cluster.url(), broker.folder, broker) for cluster in (old, new))
        after.configure()
        before.configure()
        with FaultProxy(LOCALHOST, old.port) as proxy, before.relay(url=proxy.url(old.url())) as relay:
            wait_until(lambda: relay.metric("relay_listener_up") == 1)
            before.insert(1)
            before.wait_until_empty()
            assert count(old, LISTENS) == 1

            proxy.move(LOCALHOST, new.port)
            with psycopg.connect(old.url(), autocommit=True) as conn:
                conn.execute("alter system set default_transaction_read_only = on")
                conn.execute("select pg_reload_conf()")
            wait_until(lambda: count(old, SESSIONS) == 0, timeout=40, what="the old server being left")
            wait_until(lambda: count(new, LISTENS) == 1, timeout=20, what="the new server being listened to")
            after.insert(1)
            after.wait_until_empty()
    assert len(broker.deliveries()) == 2
