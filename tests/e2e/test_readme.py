"""README's way from nothing to a delivered message, run as it stands."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
import redis

from tests.command import Command
from tests.redis_sinks import entries
from tests.servers.base import wait_until

pytestmark = pytest.mark.timeout(300)

README = (Path(__file__).parents[2] / "README.md").read_text()
SECTION = README.partition("## From nothing to a delivered message\n")[2].partition("\n## ")[0]
BLOCKS = dict(re.findall(r"^```(\w+)\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL))
COMMANDS = [
    shlex.split(line.removeprefix("$ "), comments=True)
    for line in BLOCKS["console"].splitlines()
    if line.startswith("$ ")
]
INSTALL, EXPORT, *STEPS, RUN = COMMANDS


@contextmanager
def running(relay: Command, env: dict[str, str]) -> Iterator[None]:
    """The last command, which ends when it is told to."""
    with relay.start(*RUN[1:], **env) as process:
        try:
            yield
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=30)
            assert process.returncode == 0, log
        finally:
            process.kill()


def stream(client: redis.Redis, name: str) -> list[tuple[bytes | None, bytes]]:
    """Key and payload of every entry."""
    return [(entry.get("key"), entry["payload"]) for entry in entries(client, name)]


def test_from_nothing_to_a_delivered_message(
    database_url: str, redis_url: str, redis_client: redis.Redis, tmp_path: Path
) -> None:
    assert INSTALL[:2] == ["pip", "install"]
    assert EXPORT[1].startswith("RELAY_DATABASE_URL=")
    assert [step[0] for step in [*STEPS, RUN]] == ["relay"] * (len(STEPS) + 1)
    relay = Command(database_url, tmp_path)
    # The file that `relay init` writes has a Redis at its usual port.
    env = {"RELAY_SINKS__EVENTS__URL": redis_url}
    for _, *args in STEPS:
        relay(*args, **env)
    with psycopg.connect(database_url, autocommit=True) as conn:
        with running(relay, env):
            conn.execute(BLOCKS["sql"].encode())
            run_python(BLOCKS["python"], database_url, tmp_path)
            wait_until(
                lambda: len(stream(redis_client, "order.created")) == 2 and stream(redis_client, "SendReceipt"),
                timeout=60,
                what="the messages being in Redis",
            )
        assert conn.execute("select id, total::text from orders order by id").fetchall() == [
            (42, "9.90"),
            (43, "12.50"),
        ]
    created = [(b"42", b'{"id": 42, "total": 9.90}'), (b"43", b'{"id":43,"total":12.5}')]
    assert stream(redis_client, "order.created") == created
    assert stream(redis_client, "SendReceipt") == [(None, b"[43]")]
    status = relay.json("status")
    assert (status["sinks"]["events"]["due"], status["unrouted"]) == (0, 0)
    assert relay("dead", "list") == "no dead messages\n"


def run_python(text: str, database_url: str, folder: Path) -> None:
    script = folder / "example.py"
    script.write_text(text)
    done = subprocess.run(
        [sys.executable, "-W", "error", script],
        cwd=folder,
        env={"RELAY_DATABASE_URL": database_url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
