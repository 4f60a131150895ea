"""Packages of npm, for JavaScript that the tests run."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.servers.base import ServerUnavailable, cache_dir, locked
from tests.servers.packages import apt_install, run_quietly


def npm_package(name: str, version: str) -> Path:
    """The folder for `NODE_PATH` with a package and all that it needs; Node itself is there then, too.

    Raises:
        ServerUnavailable: it cannot be had here.
    """
    if not shutil.which("npm"):
        apt_install("nodejs", "npm")
    folder = cache_dir() / "node"
    with locked("node"):
        if not (folder / "node_modules" / name).is_dir():
            quiet = ["--silent", "--no-audit", "--no-fund"]
            try:
                run_quietly("npm", "install", *quiet, "--prefix", folder, f"{name}@{version}")
            except RuntimeError as error:
                raise ServerUnavailable(f"{name} of npm", f"npm install {name}", str(error)) from error
    return folder / "node_modules"
