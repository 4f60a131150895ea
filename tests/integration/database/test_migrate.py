"""`relay migrate`: several at once, killed half way, by psql, by roles with few rights, on older and newer schemas."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg import Connection
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier

from relay.database import schema
from relay.database.connection import Database
from relay.errors import RelayError, SchemaMismatch
from relay.statements import folder
from tests.command import SINKS, Command
from tests.harness.observer import observed_writer
from tests.servers.base import wait_until
from tests.servers.postgres import DEFAULT_VERSION, find_programs, new_database

pytestmark = pytest.mark.full

NEWEST = schema.migrations()[-1]

WAITS = (
    "select count(*) from pg_locks l join pg_stat_activity a using (pid) where not l.granted and application_name = %s"
)


@contextmanager
def session(url: str) -> Iterator[Connection]:
    with psycopg.connect(url, autocommit=True) as conn:
        yield conn


def versions(conn: Connection) -> list[int]:
    return [version for (version,) in conn.execute("select version from relay.migrations order by 1").fetchall()]


def schema_exists(conn: Connection) -> bool:
    return conn.execute("select from pg_namespace where nspname = 'relay'").fetchone() is not None


def waits_for_a_lock(conn: Connection, name: str) -> bool:
    row = conn.execute(WAITS, [name]).fetchone()
    return row is not None and row[0] > 0


@contextmanager
def role(url: str, **settings: str) -> Iterator[str]:
    """URL of the same database for a role that may only connect."""
    name = f"role_{uuid4().hex[:16]}"
    with session(url) as conn:
        conn.execute(SQL("create role {} login").format(Identifier(name)))
        for setting, value in settings.items():
            conn.execute(SQL("alter role {} set {} = {}").format(Identifier(name), Identifier(setting), value))
    try:
        yield make_conninfo(url, user=name)
    finally:
        with session(url) as conn:
            conn.execute(SQL("drop owned by {}").format(Identifier(name)))
            conn.execute(SQL("drop role {}").format(Identifier(name)))


@pytest.fixture
def second_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> schema.Migration:
    """A release that has one more file: a column."""
    files = tmp_path / "release" / "migrations"
    files.mkdir(parents=True)
    for migration in schema.migrations():
        (files / f"{migration}.sql").write_text(migration.text)
    added = schema.Migration(NEWEST.version + 1, "more", "alter table relay.outbox add column more integer;\n")
    (files / f"{added}.sql").write_text(added.text)
    monkeypatch.setattr(schema, "folder", lambda: files.parent)
    return added


def test_the_first_run_creates_and_the_second_finds_nothing_to_do(database_url: str, tmp_path: Path) -> None:
    relay = Command(database_url, tmp_path)
    check = relay.run("migrate", "--check")
    assert check.returncode == 3
    assert f"{schema.migrations()[0]} is to be applied" in check.stderr

    assert f"applied {NEWEST}" in relay("migrate")
    assert relay("migrate") == f'schema "relay" is up to date: version {NEWEST.version}\n'
    assert relay("migrate", "--check") == f'schema "relay" is up to date: version {NEWEST.version}\n'


@pytest.mark.timeout(240)
def test_five_processes_at_once_one_applies(postgres: str, tmp_path: Path) -> None:
    for _ in range(4):
        with new_database(postgres) as url:
            relay = Command(url, tmp_path)
            processes = [relay.start("migrate") for _ in range(5)]
            ends = [(process.communicate(timeout=60), process.returncode) for process in processes]
            assert [code for _, code in ends] == [0] * 5, ends
            assert sum(f"applied {NEWEST}" in stdout for (stdout, _), _ in ends) == 1
            assert all("is up to date" in stdout for (stdout, _), _ in ends)
            with session(url) as conn:
                assert versions(conn) == [migration.version for migration in schema.migrations()]


def test_five_connections_at_once_twenty_times(postgres: str) -> None:
    def one(url: str) -> int:
        with closing(Database(url, name="relay migrate")) as database:
            return len(schema.migrate(database))

    with ThreadPoolExecutor(5) as pool:
        for _ in range(20):
            with new_database(postgres) as url:
                assert sorted(pool.map(one, [url] * 5)) == [0, 0, 0, 0, len(schema.migrations())]


def test_killed_half_way_leaves_nothing_and_the_next_run_does_it(database_url: str, tmp_path: Path) -> None:
    relay = Command(database_url, tmp_path)
    with session(database_url) as witness, session(database_url) as blocker, blocker.transaction(force_rollback=True):
        # The tables come before the triggers, so it waits here with half of its work done.
        blocker.execute("lock table pg_catalog.pg_trigger in share mode")
        process = relay.start("migrate")
        wait_until(lambda: waits_for_a_lock(witness, "relay migrate"), timeout=20, what="the migration being half way")
        process.kill()
        process.communicate()
        assert not schema_exists(witness)
    with session(database_url) as witness:
        wait_until(
            lambda: (
                not witness.execute("select from pg_stat_activity where application_name = 'relay migrate'").rowcount
            ),
            what="the killed migration's session being gone",
        )
        assert not schema_exists(witness)
        assert f"applied {NEWEST}" in relay("migrate")
        assert versions(witness) == [migration.version for migration in schema.migrations()]


def dump(url: str) -> str:
    """The schema as pg_dump writes it, without what differs from call to call."""
    program = find_programs(DEFAULT_VERSION) / "pg_dump"
    text = subprocess.run(
        [program, "--schema-only", "--schema=relay", url], check=True, capture_output=True, text=True
    ).stdout
    # PostgreSQL 15.20 of Debian has a number of its own with each column.
    return re.sub(r"^(\\(un)?restrict |.* SET \(pg_attver=).*$", "", text, flags=re.MULTILINE)


def psql(file: Path, url: str) -> subprocess.CompletedProcess[str]:
    program = find_programs(DEFAULT_VERSION) / "psql"
    argv: list[Path | str] = [program, "-q", "-v", "ON_ERROR_STOP=1", "-f", file, url]
    return subprocess.run(argv, check=False, capture_output=True, text=True)


def test_what_psql_makes_of_the_script_is_what_migrate_makes(postgres: str, tmp_path: Path) -> None:
    with new_database(postgres) as by_psql, new_database(postgres) as by_migrate:
        # It is printed without any database or file.
        script = Command("", tmp_path)("migrate", "--sql")
        file = tmp_path / "schema.sql"
        file.write_text(script)
        assert psql(file, by_psql).returncode == 0

        relay = Command(by_migrate, tmp_path)
        relay("migrate")
        assert "is up to date" in Command(by_psql, tmp_path)("migrate", "--check")
        assert dump(by_psql) == dump(by_migrate)
        assert len(dump(by_psql)) > 10_000
        again = psql(file, by_psql)
        assert again.returncode == 3
        assert "already exists" in again.stderr


def test_the_script_of_an_upgrade_has_only_what_follows(
    relay_database_url: str, second_file: schema.Migration, tmp_path: Path
) -> None:
    file = tmp_path / "upgrade.sql"
    file.write_text(schema.script(after=NEWEST.version))
    assert psql(file, relay_database_url).returncode == 0
    with closing(Database(relay_database_url)) as database:
        schema.check_version(database)
    assert "create schema" not in file.read_text()


def test_a_role_without_rights_to_create_may_find_nothing_to_do(relay_database_url: str, tmp_path: Path) -> None:
    with role(relay_database_url) as url:
        refused = Command(url, tmp_path).run("migrate")
        assert refused.returncode == 1
        assert "permission denied for schema relay" in refused.stderr
        with session(relay_database_url) as conn:
            user = psycopg.conninfo.conninfo_to_dict(url)["user"]
            conn.execute(SQL("grant relay_worker to {}").format(Identifier(str(user))))
        assert "is up to date" in Command(url, tmp_path)("migrate")
        assert "is up to date" in Command(url, tmp_path)("migrate", "--check")


def test_a_role_without_rights_to_create_is_refused_where_something_is_to_do(database_url: str, tmp_path: Path) -> None:
    with role(database_url) as url:
        refused = Command(url, tmp_path).run("migrate")
        assert refused.returncode == 1
        assert len(refused.stderr.splitlines()) == 1
        assert "permission denied for database" in refused.stderr
        assert "relay migrate --sql" in refused.stderr
        with session(database_url) as conn:
            assert not schema_exists(conn)


def test_settings_of_the_role_do_not_matter(database_url: str, tmp_path: Path) -> None:
    settings = {"statement_timeout": "150ms", "search_path": "decoy", "default_transaction_isolation": "serializable"}
    with session(database_url) as conn:
        conn.execute("create schema decoy create table migrations (version int) create table outbox (id int)")
        with role(database_url, **settings) as url:
            user = str(psycopg.conninfo.conninfo_to_dict(url)["user"])
            database = conn.info.dbname
            conn.execute(SQL("grant create on database {} to {}").format(Identifier(database), Identifier(user)))
            Command(url, tmp_path)("migrate")
            assert versions(conn) == [migration.version for migration in schema.migrations()]
            conn.execute("drop schema relay cascade")


def test_an_older_schema_is_refused_and_upgraded(relay_database_url: str, second_file: schema.Migration) -> None:
    with closing(Database(relay_database_url)) as database:
        with pytest.raises(
            SchemaMismatch, match=f"at version {NEWEST.version}.*needs {second_file.version}.*relay migrate"
        ):
            schema.check_version(database)
        assert schema.migrate(database) == [second_file]
        schema.check_version(database)


def test_a_newer_schema_is_refused(relay_database_url: str, tmp_path: Path) -> None:
    with session(relay_database_url) as conn:
        conn.execute("insert into relay.migrations (version, name) values (9999, 'future')")
    relay = Command(relay_database_url, tmp_path)
    relay.configure(SINKS)
    for args, code in ((["migrate"], 1), (["migrate", "--check"], 3), (["status"], 1), (["apply"], 1), (["run"], 1)):
        done = relay.run(*args)
        assert done.returncode == code
        assert len(done.stderr.splitlines()) == 1
        assert "version 9999, newer than this release" in done.stderr
        assert "upgrade" in done.stderr


def test_a_missing_schema_is_refused(database_url: str, tmp_path: Path) -> None:
    relay = Command(database_url, tmp_path)
    relay.configure(SINKS)
    for args in (["status"], ["apply"], ["dead", "list"], ["pause", "emails", "--reason", "x"], ["run"]):
        done = relay.run(*args)
        assert done.returncode == 1
        assert done.stderr == 'Error: there is no schema "relay"; run: relay migrate\n'


def test_a_failing_file_leaves_nothing(database_url: str, second_file: schema.Migration, tmp_path: Path) -> None:
    broken = tmp_path / "release" / "migrations" / f"{second_file.version + 1:04}_broken.sql"
    broken.write_text("create table relay.half (id int);\nselect 1 / 0;\n")
    with closing(Database(database_url)) as database, session(database_url) as conn:
        with pytest.raises(RelayError, match="division by zero"):
            schema.migrate(database)
        assert not schema_exists(conn)
        broken.unlink()
        assert len(schema.migrate(database)) == len(schema.migrations())


def test_a_lock_is_waited_for_shortly_again_and_again_and_writers_pass(
    relay_database_url: str, second_file: schema.Migration
) -> None:
    with closing(Database(relay_database_url, name="relay migrate")) as database, session(relay_database_url) as reader:
        said: list[str] = []
        with ThreadPoolExecutor(1) as pool:
            reader.execute("begin")
            reader.execute("select count(*) from relay.outbox")
            migration = pool.submit(schema.migrate, database, say=said.append)
            with session(relay_database_url) as writer:
                wait_until(lambda: waits_for_a_lock(writer, "relay migrate"), timeout=20)
                writer.execute("set statement_timeout = '5s'")
                writer.execute("insert into relay.outbox (kind, payload) values ('Send', '{}')")
            wait_until(lambda: said, timeout=20, what="the migration saying what it waits for")
            assert f"process {reader.info.backend_pid}" in said[0]
            reader.execute("commit")
            assert migration.result(timeout=30) == [second_file]


def test_writers_lose_a_tenth_of_their_time_at_most_while_a_migration_waits(
    relay_database_url: str, second_file: schema.Migration
) -> None:
    """It was nine tenths. So with everything that waits for a strong lock: `relay apply` that removes a sink
    (tests/integration/test_apply.py), the identity of rows (tests/integration/database/test_publications.py)."""
    tries: list[str] = []
    with closing(Database(relay_database_url, name="relay migrate")) as database, ThreadPoolExecutor(1) as pool:
        with session(relay_database_url) as reader, reader.transaction():
            reader.execute("select count(*) from relay.outbox")
            with observed_writer(relay_database_url) as observed:
                migration = pool.submit(schema.migrate, database, say=tries.append)
                wait_until(lambda: len(tries) >= 3, timeout=60, what="three tries to get the lock")
        assert 0 < observed.share < 0.2
        assert migration.result(timeout=30) == [second_file]


def test_a_lock_that_is_never_free_ends_in_one_error_that_names_its_holder(
    relay_database_url: str, second_file: schema.Migration
) -> None:
    with closing(Database(relay_database_url)) as database, session(relay_database_url) as reader, reader.transaction():
        reader.execute("set application_name = 'a long report'")
        reader.execute("select count(*) from relay.outbox")
        with pytest.raises(RelayError, match=rf"process {reader.info.backend_pid} \(a long report"):
            schema.migrate(database, patience=0.1)
        with pytest.raises(SchemaMismatch):
            schema.check_version(database)


def test_a_half_built_index_is_found_and_rebuilt(relay_database_url: str, tmp_path: Path) -> None:
    relay = Command(relay_database_url, tmp_path)
    with session(relay_database_url) as conn:
        conn.execute("insert into relay.outbox (kind, payload) values ('a', '{}'), ('a', '{}')")
        for name in ("by_kind", "outbox_ready_ccnew"):
            with pytest.raises(psycopg.errors.UniqueViolation):
                conn.execute(f"create unique index concurrently {name} on relay.outbox (kind)")
        conn.execute("delete from relay.outbox")

        check = relay.run("migrate", "--check")
        assert check.returncode == 3
        assert "index by_kind was left half-built" in check.stderr
        relay("migrate")
        rows = conn.execute(
            "select c.relname, i.indisvalid from pg_index i join pg_class c on c.oid = i.indexrelid "
            "where c.relname ~ 'by_kind|ccnew'"
        ).fetchall()
        assert rows == [("by_kind", True)]
    assert "is up to date" in relay("migrate", "--check")


def test_no_two_files_have_a_number() -> None:
    names = sorted(path.name for path in (folder() / "migrations").iterdir())
    assert len({int(name[:4]) for name in names}) == len(names)
