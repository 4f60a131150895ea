"""The command `relay` as a person runs it: a process of its own, with a file and a database."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relay.admin.apply import apply
from relay.config.settings import load
from relay.database.connection import Database

SINKS = """
[sinks.emails]
type = "memory"

[sinks.orders]
type = "memory"
order = "key"
shards = 8

[[routes]]
kind = "Send*"
sink = "emails"

[[routes]]
kind = "order.*"
sink = "orders"
"""


@dataclass(frozen=True)
class Command:
    """Runs `relay` on one database, in a folder whose relay.toml `configure` writes."""

    url: str
    folder: Path

    def configure(self, text: str) -> None:
        (self.folder / "relay.toml").write_text(text, encoding="utf-8")

    def start(self, *args: str, **env: str) -> subprocess.Popen[str]:
        """Without waiting for its end."""
        return subprocess.Popen(
            [sys.executable, "-m", "relay", *args],
            cwd=self.folder,
            env=self._environment(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *args: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        """To its end, however it ends."""
        process = self.start(*args, **env)
        try:
            stdout, stderr = process.communicate(stdin, timeout=100)
        finally:
            process.kill()
        return subprocess.CompletedProcess(args, process.returncode, stdout, stderr)

    def __call__(self, *args: str, stdin: str = "", **env: str) -> str:
        """What it printed; it must succeed."""
        done = self.run(*args, stdin=stdin, **env)
        assert done.returncode == 0, f"relay {' '.join(args)} ended with {done.returncode}: {done.stderr}"
        return done.stdout

    def json(self, *args: str, stdin: str = "") -> Any:
        """The document that it printed; it must succeed."""
        return json.loads(self(*args, "--json", stdin=stdin))

    def _environment(self, env: dict[str, str]) -> dict[str, str]:
        others = {name: value for name, value in os.environ.items() if not name.startswith("RELAY_")}
        return {**others, "RELAY_DATABASE_URL": self.url, **env}


def configured(url: str, folder: Path) -> Command:
    """The command with the file `SINKS`, which is applied already."""
    command = Command(url, folder)
    command.configure(SINKS)
    with closing(Database(url)) as database:
        apply(database, load(folder / "relay.toml", {"RELAY_DATABASE_URL": url}))
    return command
