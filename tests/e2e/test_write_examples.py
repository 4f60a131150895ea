"""The examples of docs/writing.md, each run as it stands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.servers.base import ServerUnavailable, cache_dir
from tests.servers.debian import chrooted, debian_root
from tests.servers.node import npm_package
from tests.servers.packages import apt_install, maven_jars

DOCUMENT = Path(__file__).parents[2] / "docs" / "writing.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = [(language, text) for language, text in BLOCK.findall(DOCUMENT.read_text()) if "order.paid" in text]

DJANGO = """
import os
import django
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

info = conninfo_to_dict(os.environ["DATABASE_URL"])
place = {"NAME": info["dbname"], "USER": info["user"], "HOST": info["host"], "PORT": info["port"]}
settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", **place}})
django.setup()
"""
GO_MODULE = """
module example
go 1.21
require github.com/jackc/pgx/v5 v5.7.2
"""
RUBY_START = """
require "active_record"
ActiveRecord::Base.establish_connection(ENV.fetch("DATABASE_URL"))
"""


def examples(language: str) -> list[str]:
    return [text for found, text in EXAMPLES if found == language]


@pytest.fixture
def conn(relay_database_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(relay_database_url, autocommit=True) as connection:
        connection.execute("create table orders (id bigint primary key, status text)")
        connection.execute("insert into orders values (42, 'new')")
        yield connection


def check(conn: psycopg.Connection) -> None:
    """Every example leaves the same behind."""
    assert conn.execute("select * from orders").fetchall() == [(42, "paid")]
    columns = "kind, payload::jsonb, key, dedupe_key, round(extract(epoch from run_at - created_at) / 60)"
    assert conn.execute(f"select {columns} from relay.outbox order by id".encode()).fetchall() == [
        ("order.paid", {"id": 42}, "42", None, None),
        ("SendReceipt", [42], None, "receipt-42", 5),
    ]


def run(*argv: str | os.PathLike[str], cwd: Path, **env: str) -> None:
    done = subprocess.run(
        argv, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_language_is_forgotten() -> None:
    assert {language for language, _ in EXAMPLES} == {"sql", "plpgsql", "python", "ruby", "go", "java", "js"}


@pytest.mark.parametrize("text", examples("sql") + examples("plpgsql"))
def test_sql(conn: psycopg.Connection, text: str) -> None:
    conn.execute(text.encode())
    check(conn)


@pytest.mark.parametrize("text", examples("python"), ids=lambda text: text.splitlines()[0].strip("# "))
def test_python(conn: psycopg.Connection, relay_database_url: str, tmp_path: Path, text: str) -> None:
    script = tmp_path / "example.py"
    script.write_text((DJANGO if "django" in text else "") + text)
    run(sys.executable, "-W", "error", script, cwd=tmp_path, DATABASE_URL=relay_database_url)
    check(conn)


@pytest.mark.full
@pytest.mark.timeout(900)  # the first time it downloads and compiles
@pytest.mark.parametrize("text", examples("js"))
def test_node(conn: psycopg.Connection, relay_database_url: str, tmp_path: Path, text: str) -> None:
    (tmp_path / "example.js").write_text(text)
    environment = {"DATABASE_URL": relay_database_url, "NODE_PATH": str(npm_package("pg", "8"))}
    run("node", "example.js", cwd=tmp_path, **environment)
    check(conn)


@pytest.mark.full
@pytest.mark.timeout(900)  # the first time it downloads and compiles
@pytest.mark.parametrize("text", examples("go"))
def test_go(conn: psycopg.Connection, relay_database_url: str, tmp_path: Path, text: str) -> None:
    if not shutil.which("go"):
        apt_install("golang-go")
    (tmp_path / "go.mod").write_text(GO_MODULE)
    (tmp_path / "main.go").write_text(text)
    caches = {"GOMODCACHE": str(cache_dir() / "go" / "mod"), "GOCACHE": str(cache_dir() / "go" / "build")}
    run("go", "run", "-mod=mod", ".", cwd=tmp_path, DATABASE_URL=relay_database_url, **caches)
    check(conn)


@pytest.mark.full
@pytest.mark.timeout(900)  # the first time it downloads and compiles
@pytest.mark.parametrize("text", examples("java"))
def test_java(conn: psycopg.Connection, relay_database_url: str, tmp_path: Path, text: str) -> None:
    jars = maven_jars("org.postgresql:postgresql:42.7.4")
    (tmp_path / "Pay.java").write_text(text)
    info = conninfo_to_dict(relay_database_url)
    url = f"jdbc:postgresql://{info['host']}:{info['port']}/{info['dbname']}?user={info['user']}"
    run("java", "-cp", f"{jars}/*", "Pay.java", cwd=tmp_path, JDBC_URL=url)
    check(conn)


@pytest.mark.full
@pytest.mark.timeout(900)  # the first time it downloads and compiles
@pytest.mark.parametrize("text", examples("ruby"))
def test_rails(conn: psycopg.Connection, relay_database_url: str, tmp_path: Path, text: str) -> None:
    root = debian_root("bookworm", "ruby-activerecord", "ruby-pg")
    if os.geteuid() != 0:
        raise ServerUnavailable("Rails' ActiveRecord", "a run as root", "only root can chroot")
    program = ["ruby", "-e", RUBY_START + text]
    run(*chrooted(root, *program), cwd=tmp_path, DATABASE_URL=relay_database_url)
    check(conn)
