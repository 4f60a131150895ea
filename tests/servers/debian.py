"""Programs of any Debian suite, unpacked into a folder: nothing on the machine changes, and root is not needed.

The suite's own apt answers what a package needs, into state and cache folders of ours; the packages are
unpacked side by side, with no maintainer script run. A single program then runs by the suite's own loader
(`loaded`); what expects to live in `/usr`, such as Ruby, runs by `chroot` (`chrooted`), which only root may.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
import tempfile
from pathlib import Path

from tests.servers.base import ServerUnavailable, cache_dir, locked
from tests.servers.packages import run_quietly

MERGED_INTO_USR = ("bin", "lib", "lib64", "sbin")
DEVICES = {"null": (1, 3), "zero": (1, 5), "random": (1, 8), "urandom": (1, 9)}


def debian_root(suite: str, *packages: str) -> Path:
    """A folder with these packages of a suite (`bookworm`, `trixie`, `sid`) and all that they need.

    Raises:
        ServerUnavailable: not a Debian machine, or the suite has no such package.
    """
    key = hashlib.sha256(" ".join(sorted(packages)).encode()).hexdigest()[:8]
    root = cache_dir() / "debian" / f"{suite}-{packages[0]}-{key}"
    with locked(f"debian-{suite}"):
        if root.is_dir():
            return root
        server = f"{' '.join(packages)} of Debian {suite}"
        if not shutil.which("apt-get"):
            raise ServerUnavailable(server, "a Debian machine", "no apt-get")
        state = cache_dir() / "debian" / f"{suite}.apt"
        (state / "lists" / "partial").mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root.parent) as name:
            folder = Path(name)
            try:
                debs = _download(suite, packages, state, folder)
                _unpack(debs, folder / "root")
            except RuntimeError as error:
                raise ServerUnavailable(server, "a Debian mirror", str(error)) from error
            (folder / "root").rename(root)
    return root


def loaded(root: Path, program: str) -> list[str]:
    """How to run a program of a root with the libraries of that root."""
    loader = next(path for path in sorted(root.glob("usr/lib*/**/ld-linux*.so.*")) if path.is_file())
    libraries = ":".join(str(path) for path in sorted(root.glob("usr/lib/*-linux-gnu*")))
    return [str(loader), "--library-path", libraries, str(root / program.lstrip("/"))]


def chrooted(root: Path, *argv: str) -> list[str]:
    """How to run a program with a root as its whole file system.

    Raises:
        ServerUnavailable: not root.
    """
    if os.geteuid() != 0:
        raise ServerUnavailable(argv[0], "a run as root, or an installation of its own", "only root can chroot")
    return ["chroot", str(root), *argv]


def _download(suite: str, packages: tuple[str, ...], state: Path, folder: Path) -> list[Path]:
    archives = folder / "archives"
    (archives / "partial").mkdir(parents=True)
    nothing_installed = folder / "status"
    nothing_installed.touch()
    sources = folder / "sources.list"
    sources.write_text(f"deb {debian_mirror()} {suite} main\n")
    settings = {
        "Dir::State": state,
        "Dir::State::status": nothing_installed,
        "Dir::Cache": folder,
        "Dir::Cache::archives": archives,
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        "Acquire::Check-Valid-Until": "false",  # a mirror's copy of sid may be old
        "Acquire::Languages": "none",
        "APT::Sandbox::User": "",
        "APT::Install-Recommends": "false",
        "Debug::NoLocking": "true",
    }
    options = [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]
    run_quietly("apt-get", *options, "update", "-qq")
    run_quietly("apt-get", *options, "install", "-qq", "-y", "--download-only", *packages)
    return sorted(archives.glob("*.deb"))


def debian_mirror() -> str:
    """The first mirror in this machine's own list of Debian's sources."""
    for name in ("sources.list.d/debian.sources", "sources.list"):
        path = Path("/etc/apt") / name
        text = path.read_text() if path.exists() else ""
        if found := re.search(r"^(?:URIs:|deb(?: \[.*?\])?) +(https?://\S+)", text, re.MULTILINE):
            return found[1]
    raise ServerUnavailable("another Debian suite", "a Debian machine", "no Debian mirror in /etc/apt")


def _unpack(debs: list[Path], root: Path) -> None:
    for name in MERGED_INTO_USR:
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for name in ("dev", "etc", "proc", "root", "tmp"):
        (root / name).mkdir()
    for deb in debs:
        # tar, as dpkg-deb's own unpacking would put a folder in the place of the links above.
        pipe = 'dpkg-deb --fsys-tarfile "$1" | tar -x --no-same-owner --keep-directory-symlink -C "$2"'
        run_quietly("bash", "-o", "pipefail", "-c", pipe, "-", deb, root)
    (root / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc" / "group").write_text("root:x:0:\n")
    for name, number in DEVICES.items():
        with contextlib.suppress(PermissionError):  # without root there is no chroot to need them
            os.mknod(root / "dev" / name, stat.S_IFCHR | 0o666, os.makedev(*number))
            (root / "dev" / name).chmod(0o666)
