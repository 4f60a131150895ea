"""Servers in containers: where a Docker engine answers, and has their image or gets it, tests use these.

They come after a server that is given (`given.py`), and before one that the test session starts by itself. A test that
stops, kills or configures its server starts one by itself anyway.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache

from tests.servers.base import wait_until

START_S = 60.0


@contextmanager
def container(
    image: str,
    port: int,
    *,
    ready: Callable[[str, int], object],
    environment: Mapping[str, str] | None = None,
    command: Sequence[str] = (),
) -> Iterator[tuple[str, int] | None]:
    """Host and port of a server in a container of its own; None where none can be had.

    Args:
        image: its name and tag.
        port: where it listens, inside.
        ready: whether it answers at a host and port; what it raises means no.
    """
    if not _available(image):
        yield None
        return
    from testcontainers.core.container import DockerContainer

    server = DockerContainer(image).with_exposed_ports(port)
    for name, value in (environment or {}).items():
        server = server.with_env(name, value)
    if command:
        server = server.with_command(list(command))
    with server:
        place = server.get_container_host_ip(), int(server.get_exposed_port(port))
        wait_until(lambda: ready(*place), timeout=START_S, what=f"{image} being ready")
        yield place


def _engine_listens() -> bool:
    """Asked first, as Docker's client leaves connections open where none does."""
    if "DOCKER_HOST" in os.environ:
        return True
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex("/var/run/docker.sock") == 0


@cache
def _available(image: str) -> bool:
    """Whether an engine answers that has this image, or can get it."""
    if not _engine_listens():
        return False
    # Its helper that cleans up is an image more; a `with` block cleans up as well.
    os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
    from testcontainers.core.docker_client import DockerClient

    try:
        client = DockerClient().client
        try:
            if not client.images.list(name=image):
                client.images.pull(image)
        finally:
            client.close()
    except Exception:  # noqa: BLE001 - whatever it says, there is no such container here
        return False
    return True
