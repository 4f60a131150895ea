"""The oldest PostgreSQL that the README promises: every statement of a relay and of an operator is one that it knows.

The same kind: a catalog's column, a function or a syntax that came with a later version.
"""

from __future__ import annotations

import psycopg
import pytest

from tests.harness.outbox import Outbox
from tests.servers.postgres import OLDEST_VERSION

pytestmark = [
    pytest.mark.full,
    pytest.mark.parametrize("postgres", [OLDEST_VERSION], indirect=True, ids=["oldest"]),
]


def test_everything_runs_on_it(outbox: Outbox) -> None:
    outbox.configure({"plain": {"max_attempts": 1}, "sorted": {"order": "key", "shards": 4, "max_attempts": 1}})
    outbox.broker.script(kinds={"bad": "reject", "again": "retry"})
    with outbox.relay() as relay:
        for sink in ("plain", "sorted"):
            outbox.insert(50, sink=sink, key="k")
            outbox.insert(kind="bad", sink=sink, key="b")
            outbox.insert(kind="again", sink=sink, key="a")
        with psycopg.connect(outbox.url, autocommit=True) as conn:
            conn.execute("create publication everything for all tables")
        outbox.insert(50, sink="sorted", key="k")
        outbox.insert(50, sink="plain", run_at="2000-01-01")
        outbox.wait_until_empty()
        assert not relay.events("worker failed")
    assert outbox.sql("select count(*) from relay.dead") == [(4,)]
    for command in (
        ["status", "--json"],
        ["dead", "list"],
        ["dead", "requeue", "--all", "--yes"],
        ["keys", "blocked"],
        ["pause", "plain", "--reason", "test"],
        ["resume", "plain"],
        ["apply", "--dry-run"],
        ["migrate"],
    ):
        done = outbox.run_relay(*command)
        assert done.returncode == 0, (command, done.stderr)
    found = outbox.run_relay("status", "--check")
    assert "does not exist" not in found.stderr
    assert "syntax" not in found.stderr
