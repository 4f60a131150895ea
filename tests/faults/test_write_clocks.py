"""A writer whose clock is wrong: delays run on the database's clock, whatever the application's says."""

from __future__ import annotations

import os
import subprocess
import sys

import psycopg
import pytest

from tests.servers.debian import debian_root

WRITE = """
import sys
from datetime import UTC, datetime, timedelta

import psycopg
from relay import enqueue, enqueue_many

with psycopg.connect(sys.argv[1]) as conn:
    print(datetime.now(UTC).isoformat())
    enqueue(conn, "one", [], run_at=timedelta(seconds=60))
    enqueue(conn, "once", [], run_at=timedelta(seconds=60), dedupe_key="d")
    enqueue_many(conn, [("many", [], timedelta(seconds=60)), ("many", [], timedelta(seconds=60))])
"""


@pytest.mark.full
@pytest.mark.parametrize("minutes", [-10, 10])
def test_a_delay_does_not_follow_a_wrong_clock(relay_database_url: str, minutes: int) -> None:
    library = next(debian_root("bookworm", "libfaketime").glob("usr/lib/*/faketime/libfaketime.so.1"))
    env = {**os.environ, "LD_PRELOAD": str(library), "FAKETIME": f"{minutes * 60:+d}"}
    done = subprocess.run(
        [sys.executable, "-c", WRITE, relay_database_url], env=env, check=True, capture_output=True, text=True
    )
    with psycopg.connect(relay_database_url) as conn:
        query = """
            select abs(extract(epoch from %s::timestamptz - now()) - %s) < 60,
                   abs(extract(epoch from run_at - created_at) - 60) < 1
              from relay.outbox"""
        found = conn.execute(query, [done.stdout.strip(), minutes * 60]).fetchall()
    assert found == [(True, True)] * 4
