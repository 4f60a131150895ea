"""A real relay process for benchmarks that want one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.stage import Stage


@contextmanager
def run_relay(here: Stage, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`relay run` with the stage's configuration, for the length of a `with` block."""
    environment = os.environ | {"RELAY_DATABASE_URL": here.url}
    command = [sys.executable, "-m", "relay", "--config", str(folder / "relay.toml"), "run"]
    with (folder / "relay.log").open("ab") as log, subprocess.Popen(command, env=environment, stderr=log) as relay:
        try:
            yield relay
        finally:
            relay.terminate()
            relay.wait(20)
