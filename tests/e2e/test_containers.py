"""The compose file and the image's parts, without an engine.

Not proven here: `docker compose up` itself. It needs images from Docker Hub, so PostgreSQL, Redis, Kafka and ElasticMQ
are the tests' own servers, and the programs that the health checks call are those of Debian, of the wheels and of
Kafka's jars, not those inside these images.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.command import Command
from tests.harness.outbox import Outbox
from tests.servers.base import free_port
from tests.servers.debian import debian_root, loaded
from tests.servers.elasticmq import ElasticMq
from tests.servers.kafka import KafkaCluster
from tests.servers.packages import maven_jars
from tests.servers.postgres import find_programs
from tests.servers.redis import find_redis

ROOT = Path(__file__).parents[2]
PLUGIN = "/usr/libexec/docker/cli-plugins/docker-compose"
LONG_RUNNING = {"relay", "postgres", "redis", "kafka", "sqs"}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """The file as `docker compose config` understands it."""
    command = [*loaded(debian_root("trixie", "docker-compose"), PLUGIN), "--project-directory", str(ROOT)]
    environment = {name: value for name, value in os.environ.items() if name != "POSTGRES_PASSWORD"}
    done = subprocess.run(
        [*command, "config", "--format", "json"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    config: dict[str, Any] = json.loads(done.stdout)
    return config


@pytest.mark.full
def test_compose_starts_things_in_order(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert services.keys() == {*LONG_RUNNING, "setup"}
    assert {name for name, service in services.items() if "healthcheck" in service} == LONG_RUNNING
    waits = {name: on["condition"] for name, on in services["relay"]["depends_on"].items()}
    healthy = dict.fromkeys(("redis", "kafka", "sqs"), "service_healthy")
    assert waits == {"setup": "service_completed_successfully", **healthy}
    assert services["setup"]["depends_on"]["postgres"]["condition"] == "service_healthy"
    assert services["setup"]["command"] == ["sh", "-c", "relay migrate && relay apply --yes"]
    for name in ("setup", "relay"):
        assert services[name]["read_only"] is True
        assert services[name]["cap_drop"] == ["ALL"]


@pytest.mark.full
def test_what_is_mounted_exists(compose: dict[str, Any]) -> None:
    mounts = [mount for service in compose["services"].values() for mount in service.get("volumes", ())]
    files = {Path(mount["source"]) for mount in mounts if mount["type"] == "bind"}
    assert files == {ROOT / "docker" / "relay.toml", ROOT / "docker" / "elasticmq.conf"}
    assert all(file.is_file() for file in files)


def test_the_relay_s_configuration_is_right(tmp_path: Path) -> None:
    command = Command("", tmp_path)
    (tmp_path / "relay.toml").write_text((ROOT / "docker" / "relay.toml").read_text())
    environment = {"RELAY_DATABASE_URL": "postgresql://app@postgres/app", "POSTGRES_PASSWORD": "app"}
    assert command("config", "check", **environment) == "ok\n"


class Tools:
    """Programs by the names that a health check calls, with a port of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, name: str, *command: str, more: str = "") -> None:
        file = self.folder / name
        file.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@" {more}\n')
        file.chmod(0o755)

    def run(self, test: list[str], ports: dict[str, int]) -> int:
        """Run a health check's command as an engine does; its exit code."""
        kind, *command = test
        for original, port in ports.items():
            command = [part.replace(f":{original}", f":{port}") for part in command]
        command = [part.replace("/opt/kafka/bin/", f"{self.folder}/") for part in command]
        argv = ["/bin/sh", "-c", command[0]] if kind == "CMD-SHELL" else command
        environment = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"}
        if "8080" in ports:  # else as the image says
            environment["HEALTH_PORT"] = str(ports["8080"])
        return subprocess.run(argv, env=environment, capture_output=True, timeout=60, check=False).returncode


Check = Callable[[Tools, int], None]
"""Adds the tools of a health check that is to look at a port."""


def postgres_tools(tools: Tools, port: int) -> None:
    tools.add("pg_isready", str(find_programs(18) / "pg_isready"), more=f"-p {port}")


def redis_tools(tools: Tools, port: int) -> None:
    (server,) = find_redis("redis:6.2")
    tools.add("redis-cli", str(Path(server).with_name("redis-cli")), "-p", str(port))


def kafka_tools(tools: Tools, port: int) -> None:
    jars = maven_jars("org.apache.kafka:kafka-tools:4.1.0", "org.slf4j:slf4j-nop:1.7.36")
    main = "org.apache.kafka.tools.BrokerApiVersionsCommand"
    tools.add("kafka-broker-api-versions.sh", "java", "-cp", f"{jars}/*", main)


def sqs_tools(tools: Tools, port: int) -> None:
    busybox = debian_root("trixie", "busybox")
    tools.add("wget", *loaded(busybox, "/usr/bin/busybox"), "wget")


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    return Tools(tmp_path)


@pytest.fixture
def port_of(request: pytest.FixtureRequest) -> Callable[[str], int]:
    """Where a service's real server listens; starts it when asked."""

    def port(service: str) -> int:
        match service:
            case "postgres":
                return urlsplit(request.getfixturevalue("postgres")).port or 5432
            case "redis":
                return urlsplit(request.getfixturevalue("redis_url")).port or 6379
            case "kafka":
                kafka: KafkaCluster = request.getfixturevalue("kafka")
                return kafka.brokers[0].port
            case _:
                elasticmq: ElasticMq = request.getfixturevalue("elasticmq")
                elasticmq.boto().create_queue(QueueName="notices")
                return elasticmq.port

    return port


@pytest.mark.full
@pytest.mark.parametrize(
    ("service", "original", "add"),
    [
        ("postgres", "5432", postgres_tools),
        ("redis", "6379", redis_tools),
        ("kafka", "9092", kafka_tools),
        ("sqs", "9324", sqs_tools),
    ],
    ids=["postgres", "redis", "kafka", "sqs"],
)
def test_health_check(
    compose: dict[str, Any], tools: Tools, port_of: Callable[[str], int], service: str, original: str, add: Check
) -> None:
    test = compose["services"][service]["healthcheck"]["test"]
    port = port_of(service)
    add(tools, port)
    assert tools.run(test, {original: port}) == 0
    nobody = free_port()
    add(tools, nobody)
    assert tools.run(test, {original: nobody}) != 0


@pytest.mark.parametrize("file", ["Dockerfile", "docker-compose.yml"])
def test_health_check_of_the_relay(outbox: Outbox, tools: Tools, file: str) -> None:
    (line,) = [line for line in (ROOT / file).read_text().splitlines() if "import urlopen" in line]
    command = json.loads(line.strip().removeprefix("CMD ").replace('"CMD", ', ""))
    tools.add("python", sys.executable)
    outbox.configure(type="memory")
    with outbox.relay() as relay:
        assert tools.run(["CMD", *command], {"8080": relay.port}) == 0
    assert tools.run(["CMD", *command], {"8080": relay.port}) != 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "--http", "0.0.0.0:8080"], "-s -- relay run --http 0.0.0.0:8080"),
        (["--help"], "-s -- relay --help"),
        (["relay", "--help"], "-s -- relay --help"),
        (["sh", "-c", "relay run"], "-s -- sh -c relay run"),
        (["status"], "-s -- relay status"),
    ],
)
def test_entrypoint(tools: Tools, arguments: list[str], expected: str) -> None:
    tools.add("tini", "echo")
    tools.add("relay", "false")
    environment = {**os.environ, "PATH": f"{tools.folder}:/usr/bin:/bin"}
    done = subprocess.run(
        [ROOT / "docker" / "entrypoint", *arguments], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == expected
