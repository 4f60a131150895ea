"""PgBouncer of several versions, in front of a PostgreSQL of the tests."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.servers.base import LOCALHOST, Server, free_port, run_server
from tests.servers.debian import debian_root, loaded

SUITES = {"1.18": "bookworm", "1.24": "trixie", "1.26": "sid"}

every_pgbouncer = pytest.mark.parametrize("pgbouncer", [pytest.param(v, marks=pytest.mark.full) for v in SUITES])
"""Runs a test that takes a version as `pgbouncer` once for each; prepared statements survive it from 1.21 on."""


@contextmanager
def run_pgbouncer(
    version: str, database_url: str, *, pool_mode: str = "transaction", pool_size: int = 2, **settings: str | int
) -> Iterator[tuple[str, Server]]:
    """Run one for the length of a `with` block; yield the database's URL through it, and the server.

    Raises:
        ServerUnavailable: this version cannot be had here.
    """
    command = loaded(debian_root(SUITES[version], "pgbouncer"), "/usr/sbin/pgbouncer")
    behind = conninfo_to_dict(database_url)
    port = free_port()
    drop = ["-u", "nobody"] if os.geteuid() == 0 else []  # it refuses to run as root
    with tempfile.TemporaryDirectory(prefix="relay-test-pgbouncer-", ignore_cleanup_errors=True) as name:
        file = Path(name) / "pgbouncer.ini"
        merged = {
            "listen_addr": LOCALHOST,
            "listen_port": port,
            "unix_socket_dir": "",
            "auth_type": "any",
            "pool_mode": pool_mode,
            "default_pool_size": pool_size,
            "max_client_conn": 500,
            # Drivers send it at the start; it is the server's own default here.
            "ignore_startup_parameters": "extra_float_digits",
            **settings,
        }
        target = make_conninfo("", **{key: behind[key] for key in ("host", "port", "dbname", "user") if key in behind})
        lines = [
            "[databases]",
            f"relay = {target}",
            "[pgbouncer]",
            *(f"{key} = {value}" for key, value in merged.items()),
        ]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        if drop:
            shutil.chown(name, "nobody")
        url = f"postgresql://{behind['user']}@{LOCALHOST}:{port}/relay"

        def ready() -> bool:
            psycopg.connect(url, connect_timeout=2).close()
            return True

        with run_server([*command, *drop, file], ready=ready, name="pgbouncer") as server:
            yield url, server
