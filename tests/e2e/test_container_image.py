"""The image, built and run by a Docker engine.

Not proven where the engine is one of our own and no registry answers: that it builds on Docker's `debian:trixie-slim`.
It is then built on a minimal Debian of the same suite, made by debootstrap.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from tests.harness.outbox import Outbox
from tests.servers.base import free_port, wait_until
from tests.servers.docker import BUILD_S, Engine

pytestmark = [pytest.mark.full, pytest.mark.timeout(BUILD_S)]

OURS_MB = 130
"""Python, the relay and the brokers' libraries, on top of the base."""


@contextmanager
def running(docker: Engine, image: str, outbox: Outbox, *options: str, command: tuple[str, ...] = ()) -> Iterator[str]:
    """A container that delivers what is in the outbox, with nothing that it could write to; its name."""
    name = f"relay-test-{uuid4().hex[:12]}"
    environment = [part for key, value in outbox.environment.items() for part in ("--env", f"{key}={value}")]
    locked_down = ["--network", "host", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    try:
        docker("run", "--detach", "--name", name, *locked_down, *environment, *options, image, *command)
        yield name
        if docker("inspect", "-f", "{{.State.Status}}", name) == "running":
            pytest.fail("it was not stopped")
    except BaseException:
        print(docker.run("logs", name))
        raise
    finally:
        docker.run("rm", "--force", "--volumes", name)


def stop(docker: Engine, name: str) -> int:
    """Stop it; its exit code."""
    docker("stop", "--time", "30", name)
    return int(docker("inspect", "-f", "{{.State.ExitCode}}", name))


def run_command(port: int) -> tuple[str, ...]:
    return ("run", "--http", f"127.0.0.1:{port}")


@pytest.fixture
def memory_outbox(outbox: Outbox) -> Outbox:
    outbox.configure(type="memory")
    return outbox


def test_size_and_contents(docker: Engine, relay_image: str, relay_base: str) -> None:
    size, base = (int(docker("image", "inspect", "-f", "{{.Size}}", name)) for name in (relay_image, relay_base))
    print(f"{size / 1e6:.0f} MB, of which the base has {base / 1e6:.0f}")
    assert size - base < OURS_MB * 1e6
    config: dict[str, Any] = json.loads(docker("image", "inspect", "-f", "{{json .Config}}", relay_image))
    assert config["User"] == "10001:10001"
    assert config["Healthcheck"]["Test"][0] == "CMD"
    tools = "for tool in gcc cc make pip pip3 git curl wget; do command -v $tool; done; true"
    assert docker("run", "--rm", "--network", "none", relay_image, "sh", "-c", tools) == ""
    libraries = "import botocore, confluent_kafka, psycopg, redis, relay.statements; print(relay.statements.folder())"
    folder = docker("run", "--rm", "--network", "none", "--read-only", relay_image, "python", "-c", libraries)
    assert folder.endswith("/site-packages/relay/sql")


@pytest.mark.parametrize("command", [["--help"], ["relay", "--help"]], ids=" ".join)
def test_help_needs_nothing(docker: Engine, relay_image: str, command: list[str]) -> None:
    began = time.monotonic()
    said = docker("run", "--rm", "--network", "none", "--read-only", relay_image, *command)
    assert said.startswith("Usage: relay ")
    # An engine takes most of it to make a container; what `relay --help` takes has a test of its own.
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("options", "shell"), [((), ()), (("--init",), ()), ((), ("sh", "-c"))], ids=["as shipped", "--init", "sh -c"]
)
def test_stops_within_five_seconds(
    docker: Engine, relay_image: str, memory_outbox: Outbox, options: tuple[str, ...], shell: tuple[str, ...]
) -> None:
    command = run_command(free_port())
    if shell:
        command = (*shell, " ".join(["exec", "relay", *command]))
    memory_outbox.insert(10)
    with running(docker, relay_image, memory_outbox, *options, command=command) as name:
        memory_outbox.wait_until_empty()
        assert stop(docker, name) == 0
        events = [json.loads(line) for line in docker.run("logs", name).stderr.splitlines()]
        finished = docker("inspect", "-f", "{{.State.FinishedAt}}", name)
    assert [event["event"] for event in events][-3:] == ["signal", "draining", "relay stopped"]
    # By the clocks of the engine and of the relay: what the command line takes on a busy machine is left out.
    took = datetime.fromisoformat(finished) - datetime.fromisoformat(events[-3]["timestamp"])
    assert took < timedelta(seconds=5)


def test_stops_when_it_has_hardly_started(docker: Engine, relay_image: str, memory_outbox: Outbox) -> None:
    with running(docker, relay_image, memory_outbox, command=run_command(free_port())) as name:
        # Until it listens to signals they end it as they end any process, and not, as a first process, never.
        assert stop(docker, name) in (0, 143)


def test_becomes_healthy_and_unhealthy(docker: Engine, relay_image: str, memory_outbox: Outbox) -> None:
    port = free_port()
    options = ["--health-interval", "1s", "--health-retries", "1", "--env", f"HEALTH_PORT={port}"]

    def health() -> str:
        return docker("inspect", "-f", "{{.State.Health.Status}}", name)

    # `docker kill` reaches the first process only, which is not the relay.
    its_process = "$(cut -d ' ' -f 1 /proc/1/task/1/children)"
    with running(docker, relay_image, memory_outbox, *options) as name:
        wait_until(lambda: health() == "healthy", timeout=60, interval=0.5, what="it being healthy")
        docker("exec", name, "sh", "-c", f"kill -STOP {its_process}")
        wait_until(lambda: health() == "unhealthy", timeout=60, interval=0.5, what="it being unhealthy")
        docker("exec", name, "sh", "-c", f"kill -CONT {its_process}")
        assert stop(docker, name) == 0
