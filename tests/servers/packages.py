"""How the tests get a server's program: packages of this machine's Debian, or jars from Maven Central."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.servers.base import ServerUnavailable, as_user, cache_dir, locked

DOWNLOAD_TIMEOUT = 900.0


def run_quietly(*argv: str | os.PathLike[str], user: str | None = None, **env: str) -> None:
    """Run a program to its end; show what it said only if it fails.

    Raises:
        RuntimeError: it failed, with the end of its output.
    """
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=DOWNLOAD_TIMEOUT,
        env={**os.environ, **env},
        check=False,
        cwd="/",
        **as_user(user),
    )
    if done.returncode:
        raise RuntimeError(f"{Path(argv[0]).name} ended with {done.returncode}:\n{done.stdout[-3000:]}")


def apt_install(*packages: str) -> None:
    """Install Debian packages on this machine, unless they are there already.

    Raises:
        ServerUnavailable: not root, not Debian, or apt refused.
    """
    with locked("apt"):
        missing = [name for name in packages if not _installed(name)]
        if not missing:
            return
        command = "apt install " + " ".join(missing)
        if os.geteuid() != 0 or not shutil.which("apt-get"):
            raise ServerUnavailable(" ".join(missing), command, "only root on Debian or Ubuntu can install packages")
        install = ["apt-get", "install", "-qq", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300", *missing]
        # RUNLEVEL=1 keeps the packages' scripts from starting their services: the tests start their own.
        quiet = {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        try:
            try:
                run_quietly(*install, "-y", **quiet)
            except RuntimeError:  # no package lists, or old ones
                run_quietly("apt-get", "update", "-qq", **quiet)
                run_quietly(*install, "-y", **quiet)
        except RuntimeError as error:
            raise ServerUnavailable(" ".join(missing), command, str(error)) from error


def _installed(package: str) -> bool:
    if not shutil.which("dpkg-query"):
        return False
    query = ["dpkg-query", "-W", "-f", "${db:Status-Status}", package]
    return subprocess.run(query, capture_output=True, text=True, check=False).stdout == "installed"


def maven_jars(*artifacts: str) -> Path:
    """A folder with the jars of some artifacts (`group:artifact:version`) and of all that they need.

    Raises:
        ServerUnavailable: Maven is neither there nor installable, or cannot resolve them.
    """
    name = artifacts[0].split(":")[1] + "-" + hashlib.sha256("\n".join(artifacts).encode()).hexdigest()[:12]
    jars = cache_dir() / "maven" / name
    with locked("maven"):
        if jars.is_dir():
            return jars
        if not shutil.which("mvn"):
            apt_install("maven", "default-jdk-headless")
        jars.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=jars.parent) as folder:
            pom = Path(folder) / "pom.xml"
            pom.write_text(_pom(artifacts))
            goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}/lib"]
            try:
                run_quietly("mvn", "-q", "-B", "-f", pom, *goal)
            except RuntimeError as error:
                raise ServerUnavailable(name, " ".join(artifacts) + " (Maven)", str(error)) from error
            (Path(folder) / "lib").rename(jars)
    return jars


def _pom(artifacts: tuple[str, ...]) -> str:
    dependencies = "".join(
        "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>".format(
            *artifact.split(":")
        )
        for artifact in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>tests</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
