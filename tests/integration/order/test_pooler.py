"""Where reading starts, behind a pooler that can lead the same connection to another server.

The same goes wrong with whatever a relay remembers of a server and asks it through a pooler: ids that were drawn, who
was writing, where rows are.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest

from relay.claims import edge
from relay.claims.shards import ShardClaims
from relay.config.settings import load
from relay.database.connection import Database
from sinks.base import DELIVERED
from tests.command import Command
from tests.servers.base import LOCALHOST
from tests.servers.pgbouncer import run_pgbouncer
from tests.servers.postgres import new_cluster
from tests.servers.proxy import FaultProxy

pytestmark = pytest.mark.full

ORDERED = """
[sinks.main]
type = "memory"
order = "key"
shards = 4

[[routes]]
kind = "*"
sink = "main"
"""
INSERT = (
    "insert into relay.outbox (kind, key, payload) select 'made', (n % 9)::text, '1' from generate_series(1, 100) n"
)


def test_ids_that_another_server_draws_again_are_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge, "EVERY_S", 0.0)
    monkeypatch.setattr(edge, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(edge, "SHARE", 1e9)
    with ExitStack() as stack:
        old, new = (stack.enter_context(new_cluster()) for _ in range(2))
        for cluster in (old, new):
            stack.enter_context(cluster.run())
            relay = Command(cluster.url(), tmp_path)
            relay.configure(ORDERED)
            relay("migrate")
            relay("apply")
        proxy = stack.enter_context(FaultProxy(LOCALHOST, old.port))
        # Ahead of the one that is left, but with messages that it had not seen: so a fail-over can leave it.
        with psycopg.connect(new.url(), autocommit=True) as conn:
            conn.execute(INSERT)
            conn.execute("select setval('relay.outbox_id_seq', 5000)")
        with psycopg.connect(old.url(), autocommit=True) as conn:
            conn.execute("select setval('relay.outbox_id_seq', 1000)")
            conn.execute(INSERT)
        settings = load(tmp_path / "relay.toml", {"RELAY_DATABASE_URL": old.url()}).sinks["main"]
        bouncer = run_pgbouncer("1.26", proxy.url(old.url()), admin_users="postgres")
        url, _ = stack.enter_context(bouncer)
        database = stack.enter_context(closing(Database(url, pooled=True)))
        worker = ShardClaims(database, settings, "worker")
        assert drained(worker) == list(range(1001, 1101))
        assert worker.claim(100) is None

        with psycopg.connect(url.replace("/relay", "/pgbouncer"), autocommit=True) as admin:
            admin.execute("pause")
            proxy.move(LOCALHOST, new.port)
            admin.execute("resume")
        assert drained(worker) == list(range(1, 101))
        assert database.connections == 1, "the relay has noticed nothing"


def drained(worker: ShardClaims) -> list[int]:
    """The ids of all that can be claimed at once."""
    ids: list[int] = []
    while (claim := worker.claim(1000)) is not None:
        ids += claim.ids
        worker.settle(claim, worker.judge(claim, [DELIVERED] * len(claim.messages)))
    return sorted(ids)
