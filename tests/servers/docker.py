"""A Docker engine: this machine's, else one from Debian that root may start; and the relay's image, built with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.servers.base import ServerUnavailable, cache_dir, locked, run_server
from tests.servers.debian import debian_mirror
from tests.servers.packages import apt_install, run_quietly

ROOT = Path(__file__).parents[2]
SUITE = "trixie"
SLIM = f"debian:{SUITE}-slim"
IMPORTED = "relay-test-base"
IMAGE = "relay-test-image"
BUILD_S = 900.0


@dataclass(frozen=True)
class Engine:
    """An engine that answers."""

    command: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)

    def run(self, *arguments: str, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
        """A `docker` command, to its end."""
        return subprocess.run(
            [*self.command, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env={**os.environ, **self.environment},
            timeout=timeout,
            check=False,
        )

    def __call__(self, *arguments: str, timeout: float = 60.0) -> str:
        """What it printed; it must succeed."""
        done = self.run(*arguments, timeout=timeout)
        assert done.returncode == 0, f"docker {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr}"
        return done.stdout.strip()

    def answers(self) -> bool:
        return bool(shutil.which(self.command[0])) and self.run("info", "-f", "{{.ServerVersion}}").returncode == 0


@contextmanager
def new_engine() -> Iterator[Engine]:
    """An engine of one's own, without networks but the host's: it changes nothing on this machine.

    Raises:
        ServerUnavailable: not root on Debian, or the kernel or a container around us does not let it run.
    """
    apt_install("docker.io", "debootstrap")
    with tempfile.TemporaryDirectory(prefix="relay-test-docker-", ignore_cleanup_errors=True) as folder:
        address = f"unix://{folder}/socket"
        engine = Engine(("docker", "-H", address), {"DOCKER_BUILDKIT": "0"})
        places = ["--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec", "--pidfile", f"{folder}/pid"]
        argv = ["dockerd", "-H", address, *places, "--bridge", "none", "--iptables=false"]
        with ExitStack() as running:
            running.callback(_unmount, Path(folder) / "exec" / "netns" / "default")
            try:
                running.enter_context(run_server(argv, ready=engine.answers, name="dockerd", timeout=60))
            except RuntimeError as error:
                raise ServerUnavailable("a Docker engine", "Docker", str(error)) from error
            yield engine


def _unmount(place: Path) -> None:
    """The engine leaves its network namespace behind."""
    subprocess.run(["umount", "--quiet", place], check=False)


@pytest.fixture(scope="session")
def docker() -> Iterator[Engine]:
    """The engine. Tests are skipped where there is none: a container without rights cannot start one."""
    engine = Engine(("docker",))
    if engine.answers():
        yield engine
        return
    try:
        with new_engine() as engine:
            yield engine
    except ServerUnavailable as error:
        pytest.skip(f"{error}. Not proven here: that the image builds, its size, its user, and how it stops")


@pytest.fixture(scope="session")
def relay_base(docker: Engine) -> str:
    """The Debian that the image is built on: Docker's slim one, else one made by debootstrap."""
    if docker.run("pull", "--quiet", SLIM, timeout=300).returncode == 0:
        return SLIM
    with docker_archive().open("rb") as archive:
        certificates = "ENV PIP_CERT=/etc/ssl/machine.crt"
        subprocess.run([*docker.command, "import", "--change", certificates, "-", IMPORTED], stdin=archive, check=True)
    return IMPORTED


@pytest.fixture(scope="session")
def relay_image(docker: Engine, relay_base: str) -> str:
    """The image of the Dockerfile."""
    options = ["--network", "host", "--build-arg", f"BASE={relay_base}", "--tag", IMAGE]
    docker("build", *options, str(ROOT), timeout=BUILD_S)
    return IMAGE


def docker_archive() -> Path:
    """A minimal Debian as a tar archive, which trusts the certificates that this machine trusts."""
    archive = cache_dir() / "debian" / f"{SUITE}-minbase.tar"
    with locked("debootstrap"):
        if archive.exists():
            return archive
        archive.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
            root = Path(folder) / "root"
            options = ["--variant=minbase", "--include=ca-certificates"]
            run_quietly("debootstrap", *options, SUITE, root, debian_mirror())
            shutil.copy("/etc/ssl/certs/ca-certificates.crt", root / "etc" / "ssl" / "machine.crt")
            leavings = ["./var/cache/apt/archives/*.deb", "./var/lib/apt/lists/*"]
            excluded = [f"--exclude={pattern}" for pattern in leavings]
            run_quietly("tar", *excluded, "-C", root, "-cf", f"{folder}/archive", ".")
            (Path(folder) / "archive").rename(archive)
    return archive
