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
import json, sys
from relay import publish, enqueue, publish_many, enqueue_many
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def imported() -> set[str]:
    """Every package that a new process has loaded after `from relay import publish`."""
    # Without site-packages: what other tools have every process load is not counted.
    argv = [sys.executable, "-S", "-c", SHOW]
    env = {"PYTHONPATH": str(Path(relay.__file__).parents[1])}
    return set(json.loads(subprocess.run(argv, env=env, check=True, capture_output=True).stdout))


def test_no_library_is_loaded_before_it_is_needed() -> None:
    drivers = {"psycopg", "psycopg2", "asyncpg", "sqlalchemy", "django"}
    others = {"pydantic", "click", "rich", "structlog", "tenacity", "prometheus_client", "redis", "confluent_kafka"}
    network = {"boto3", "botocore", "http", "socket", "ssl", "asyncio"}
    assert imported() & (drivers | others | network) == set()


@pytest.mark.parametrize("conn", [None, 42, object()])
def test_what_is_no_connection_is_named(conn: object) -> None:
    with pytest.raises(UsageError, match=rf"expected a connection of psycopg, .* got builtins\.{type(conn).__name__}"):
        publish(conn, "k", 1)
