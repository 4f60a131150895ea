"""An application that only writes pays for nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import relay
from relay import publish
from relay.errors import UsageError

SHOW = """
import json, sys, time
began = time.perf_counter()
from relay import publish, enqueue, publish_many, enqueue_many
took = time.perf_counter() - began
print(json.dumps([took, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def imported() -> tuple[float, set[str]]:
    """Seconds that `from relay import publish` took in a new process, and every package that was loaded then."""
    # Without site-packages: what other tools have every process load is not counted.
    argv = [sys.executable, "-S", "-c", SHOW]
    env = {"PYTHONPATH": str(Path(relay.__file__).parents[1])}
    took, names = json.loads(subprocess.run(argv, env=env, check=True, capture_output=True).stdout)
    return took, set(names)


def test_no_library_is_loaded_before_it_is_needed() -> None:
    drivers = {"psycopg", "psycopg2", "asyncpg", "sqlalchemy", "django"}
    others = {"pydantic", "click", "rich", "structlog", "tenacity", "prometheus_client", "redis", "confluent_kafka"}
    network = {"boto3", "botocore", "http", "socket", "ssl", "asyncio"}
    assert imported()[1] & (drivers | others | network) == set()


def test_it_is_loaded_at_once() -> None:
    # The best of a few: the machine may be busy.
    assert min(imported()[0] for _ in range(5)) < 0.15


@pytest.mark.parametrize("conn", [None, 42, object()])
def test_what_is_no_connection_is_named(conn: object) -> None:
    with pytest.raises(UsageError, match=rf"expected a connection of psycopg, .* got builtins\.{type(conn).__name__}"):
        publish(conn, "k", 1)
