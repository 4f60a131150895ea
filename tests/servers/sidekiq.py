"""Sidekiq of several versions, from Debian: a running one, its own API and its Web UI."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.servers.base import Server, ServerUnavailable, run_server
from tests.servers.debian import chrooted, debian_root

SUITES = {"6.4": "bookworm", "7.3": "trixie", "8.1": "sid"}
RUBY = Path(__file__).with_name("sidekiq")

SETTINGS = """
:concurrency: 5
:poll_interval_average: 0.2
:timeout: 1
:queues: [{}]
"""

every_sidekiq = pytest.mark.parametrize(
    "version", [pytest.param(version, marks=pytest.mark.full) for version in SUITES]
)
"""Runs a test that asks for `version` once for each Sidekiq."""


@dataclass(frozen=True)
class Sidekiq:
    """One version's programs, for the Redis at `url`."""

    root: Path
    files: str
    """Folder of our Ruby files, as seen inside the root."""
    url: str

    @property
    def _env(self) -> dict[str, str]:
        return {"REDIS_URL": self.url, "RUBYOPT": "-EUTF-8"}  # the root has no locales

    @contextmanager
    def running(self, queues: Sequence[str] = ("default",)) -> Iterator[Server]:
        """Workers for these queues, with the jobs of `workers.rb`."""
        settings = self.root / self.files.lstrip("/") / "settings.yml"
        settings.write_text(SETTINGS.format(", ".join(queues)))
        argv = ["sidekiq", "-C", f"{self.files}/settings.yml", "-r", f"{self.files}/workers.rb"]
        with redis.Redis.from_url(self.url) as client:
            client.delete("started")

            def ready() -> object:
                return client.exists("started")

            # Its heartbeat wants /proc, which the root does not have; what it registers is not looked at.
            with run_server(chrooted(self.root, *argv), ready=ready, name="sidekiq", env=self._env) as server:
                yield server

    def api(self) -> Any:
        """What Sidekiq's own API reads; `api.rb` says what that is."""
        return self._run("api.rb")

    def push(self, jobs: Sequence[dict[str, Any]]) -> list[str | None]:
        """What Sidekiq's own client raises for each job; None: it takes it."""
        answers: list[str | None] = self._run("client.rb", json.dumps(jobs))
        return answers

    def pages(self, *paths: str) -> dict[str, str]:
        """Pages of the Web UI; each must be there."""
        answers = self._run("web.rb", *paths)
        assert {status for status, _ in answers.values()} == {200}, answers
        return {path: text for path, (_, text) in answers.items()}

    def _run(self, script: str, *arguments: str) -> Any:
        done = subprocess.run(
            chrooted(self.root, "ruby", f"{self.files}/{script}", *arguments),
            env={**os.environ, **self._env},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])  # Sidekiq logs to standard output, too


@contextmanager
def sidekiq_at(version: str, redis_url: str) -> Iterator[Sidekiq]:
    """Sidekiq of this version for this Redis (7.0 or later).

    Raises:
        ServerUnavailable: it cannot be had here.
    """
    root = debian_root(SUITES[version], "ruby-sidekiq", "ruby-activejob")
    with tempfile.TemporaryDirectory(prefix="relay-test-", dir=root / "tmp") as name:
        for file in RUBY.glob("*.rb"):
            shutil.copy(file, name)
        folder = Path(name)
        folder.chmod(0o755)
        sidekiq = Sidekiq(root, f"/{folder.relative_to(root)}", redis_url)
        found = sidekiq.api()["version"]
        if not found.startswith(f"{version}."):
            raise ServerUnavailable(f"Sidekiq {version}", "ruby-sidekiq", f"Debian {SUITES[version]} has {found}")
        yield sidekiq
