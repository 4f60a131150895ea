"""`relay migrate --sql` inside whatever applies it: psql, Django, Alembic, any transaction; and databases that are set
up otherwise.

The same goes wrong with every tool that has a transaction of its own around a script, splits it at semicolons, or takes
"%" or ":name" for a parameter: Flyway, Rails, golang-migrate.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from psycopg.sql import SQL, Identifier, Literal

from tests.command import Command
from tests.harness.outbox import Outbox
from tests.harness.scripted import ScriptedBroker
from tests.servers.base import wait_until
from tests.servers.postgres import with_database

pytestmark = pytest.mark.full

SETTINGS = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout", "search_path",
            "standard_conforming_strings")  # fmt: skip

DJANGO = """
import os, sys
from pathlib import Path
import django
from django.conf import settings
from django.core.management import call_command

here = Path(__file__).parent
database = dict(zip(("NAME", "USER", "HOST", "PORT"), sys.argv[1:5]), ENGINE="django.db.backends.postgresql")
auto = "django.db.models.AutoField"
settings.configure(DATABASES={"default": database}, INSTALLED_APPS=["shop"], DEFAULT_AUTO_FIELD=auto)
django.setup()
call_command("migrate")
"""

DJANGO_MIGRATION = """
from pathlib import Path
from django.db import migrations, models

class Migration(migrations.Migration):
    operations = [
        migrations.RunSQL(Path("schema.sql").read_text(), "drop schema relay cascade"),
        migrations.CreateModel("Order", [("id", models.AutoField(primary_key=True))]),
    ]
"""

ALEMBIC_ENV = """
from alembic import context
from sqlalchemy import create_engine

url = context.config.get_main_option("sqlalchemy.url")
with create_engine(url).connect() as connection:
    context.configure(connection=connection)
    with context.begin_transaction():
        context.run_migrations()
"""

ALEMBIC_MIGRATION = """
from pathlib import Path
from alembic import op
import sqlalchemy as sa

revision, down_revision = "0001", None

def upgrade():
    op.execute(Path("schema.sql").read_text())
    op.create_table("orders", sa.Column("id", sa.Integer, primary_key=True))
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    text = Command("", tmp_path)("migrate", "--sql")
    (tmp_path / "schema.sql").write_text(text, encoding="ascii")
    return text


def python(folder: Path, *args: str) -> None:
    done = subprocess.run([sys.executable, *args], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def is_up_to_date(url: str, folder: Path) -> None:
    assert "is up to date" in Command(url, folder)("migrate", "--check")


def test_django_goes_on_after_it(database_url: str, script: str, tmp_path: Path) -> None:
    app = tmp_path / "shop" / "migrations"
    app.mkdir(parents=True)
    for file, text in {"../__init__.py": "", "__init__.py": "", "0001_initial.py": DJANGO_MIGRATION}.items():
        (app / file).write_text(text)
    (tmp_path / "manage.py").write_text(DJANGO)
    given = conninfo_to_dict(database_url)
    python(tmp_path, "manage.py", *(str(given[part]) for part in ("dbname", "user", "host", "port")))
    is_up_to_date(database_url, tmp_path)
    with psycopg.connect(database_url) as conn:
        assert conn.execute("select app from public.django_migrations").fetchall() == [("shop",)]
        assert conn.execute("select count(*) from public.shop_order").fetchone() == (0,)


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_alembic_goes_on_after_it(database_url: str, script: str, tmp_path: Path, driver: str) -> None:
    versions = tmp_path / "alembic" / "versions"
    versions.mkdir(parents=True)
    (tmp_path / "alembic" / "env.py").write_text(ALEMBIC_ENV)
    (versions / "0001.py").write_text(ALEMBIC_MIGRATION)
    url = database_url.replace("postgresql://", f"postgresql+{driver}://")
    (tmp_path / "alembic.ini").write_text(f"[alembic]\nscript_location = alembic\nsqlalchemy.url = {url}\n")
    python(tmp_path, "-m", "alembic", "upgrade", "head")
    is_up_to_date(database_url, tmp_path)
    with psycopg.connect(database_url) as conn:
        assert conn.execute("select version_num from public.alembic_version").fetchall() == [("0001",)]
        assert conn.execute("select count(*) from public.orders").fetchone() == (0,)


def test_no_setting_of_the_transaction_around_it_is_changed(database_url: str, script: str) -> None:
    with psycopg.connect(database_url) as conn:
        conn.execute("set search_path = pg_temp, public")
        conn.execute("set local lock_timeout = '7s'")
        before = [conn.execute(f"show {setting}".encode()).fetchone() for setting in SETTINGS]
        conn.execute(script.encode())
        assert [conn.execute(f"show {setting}".encode()).fetchone() for setting in SETTINGS] == before
        conn.rollback()
        assert conn.execute("select count(*) from pg_namespace where nspname = 'relay'").fetchone() == (0,)


def test_a_script_that_fails_leaves_nothing_without_a_transaction_too(database_url: str, script: str) -> None:
    broken = script.replace("execute $v2$", "perform 1 / 0; execute $v2$")
    with psycopg.connect(database_url, autocommit=True) as conn:
        with pytest.raises(psycopg.errors.DivisionByZero):
            conn.execute(broken.encode())
        assert conn.execute("select count(*) from pg_namespace where nspname = 'relay'").fetchone() == (0,)


@pytest.mark.parametrize("how", ["migrate", "script"])
def test_backslashes_that_escape_do_no_harm(database_url: str, script: str, tmp_path: Path, how: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as conn:
        name = Identifier(conn.info.dbname)
        conn.execute(SQL("alter database {} set standard_conforming_strings = off").format(name))
        conn.execute(SQL("alter database {} set backslash_quote = off").format(name))
    with psycopg.connect(database_url, autocommit=True) as conn:
        if how == "migrate":
            Command(database_url, tmp_path)("migrate")
        else:
            conn.execute(script.encode())
    deliver_and_bury(database_url, tmp_path, "quoted \"\\\" 'text'")


@contextmanager
def database_in(postgres: str, encoding: str) -> Iterator[str]:
    """URL of a database of this encoding."""
    name = f"test_{uuid4().hex[:16]}"
    with psycopg.connect(postgres, autocommit=True) as conn:
        make = SQL("create database {} template template0 encoding {} lc_collate 'C' lc_ctype 'C'")
        conn.execute(make.format(Identifier(name), Literal(encoding)))
        try:
            yield with_database(postgres, name)
        finally:
            conn.execute(SQL("drop database {} with (force)").format(Identifier(name)))


@pytest.mark.parametrize("encoding", ["LATIN1", "EUC_JP", "SQL_ASCII"])
def test_a_database_in_another_encoding(postgres: str, tmp_path: Path, encoding: str) -> None:
    """Whatever a broker says of a message has to fit into it, too: else the claim could never be settled."""
    with database_in(postgres, encoding) as url:
        Command(url, tmp_path)("migrate")
        deliver_and_bury(url, tmp_path, "the broker says: \u65e5\u672c \u20ac \u2192 \u00e9")


def deliver_and_bury(url: str, folder: Path, reason: str) -> None:
    """One message arrives, another one is dead for this reason."""
    broker = ScriptedBroker(folder / "broker")
    broker.folder.mkdir()
    outbox = Outbox(url, folder, broker)
    outbox.configure({"main": {"max_attempts": 1}})
    [good] = outbox.insert(1)
    [bad] = outbox.insert(1, kind="bad")
    broker.script(batch={"do": "unavailable", "reason": reason})
    with outbox.relay():
        wait_until(lambda: outbox.sql("select 1 from relay.relays where circuits <> '{}'"), what="an open circuit")
        broker.script(kinds={"bad": {"do": "reject", "reason": reason}})
        outbox.wait_until_empty()
    assert list(broker.copies()) == [good]
    assert outbox.sql("select id from relay.dead") == [(bad,)]
