"""`relay init`, `relay config check`, `relay config show`: the real commands."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

from tests.unit.commands.test_cli import RELAY, environment, relay
from tests.unit.configured import MEMORY, write


def test_init_writes_a_file_that_is_right(tmp_path: Path) -> None:
    done = relay("init", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Wrote relay.toml. Next:\n")
    for command in ("relay config check", "relay migrate", "relay apply", "relay run"):
        assert command in done.stdout
    assert relay("config", "check", cwd=tmp_path).stdout == "ok\n"


def test_init_overwrites_only_by_force(tmp_path: Path) -> None:
    file = write(tmp_path, "mine")
    done = relay("init", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: relay.toml: expected no such file, got one: --force overwrites it\n"
    assert file.read_text() == "mine"
    assert relay("init", "--force", cwd=tmp_path).returncode == 0
    assert "[database]" in file.read_text()


@pytest.mark.parametrize(("args", "env"), [(["--config", "o.toml"], {}), ([], {"RELAY_CONFIG": "o.toml"})])
def test_init_writes_the_file_that_is_read(tmp_path: Path, args: list[str], env: dict[str, str]) -> None:
    assert relay(*args, "init", cwd=tmp_path, env=env).stdout.startswith("Wrote o.toml.")
    assert (tmp_path / "o.toml").exists()


def test_init_where_nothing_can_be_written(tmp_path: Path) -> None:
    done = relay("init", "--config", "no/relay.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "Error: no/relay.toml: expected a place to write to, got: No such file or directory\n"


def test_check_tells_all_problems(tmp_path: Path) -> None:
    write(tmp_path, MEMORY + 'workers = 0\nlease = "1s"\n')
    done = relay("config", "check", cwd=tmp_path, env={"RELAY_SINKS__ORDERS__KEEP": "maybe"})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "relay.toml: sinks.orders.workers: expected at least 1, got 0",
        'relay.toml: sinks.orders.lease: expected at least twice send_timeout (20s), got "1s"',
        'environment RELAY_SINKS__ORDERS__KEEP: sinks.orders.keep: expected true or false, got "maybe"',
    ]


def test_check_where_there_is_nothing(tmp_path: Path) -> None:
    done = relay("config", "check", cwd=tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert relay("config", "check", cwd=tmp_path, env={"RELAY_DATABASE_URL": "postgresql://db/app"}).stdout == "ok\n"


def test_show_is_plain_text_in_a_pipe(tmp_path: Path) -> None:
    write(tmp_path, MEMORY)
    done = relay("config", "show", cwd=tmp_path, env={"RELAY_DATABASE_URL": "postgresql://u:pw@db/" + "a" * 200})
    assert (done.returncode, done.stderr) == (0, "")
    titles, *rows = [line.split() for line in done.stdout.splitlines()]
    assert titles == ["KEY", "VALUE", "ORIGIN"]
    assert rows[0] == ["database.url", "postgresql://u:***@db/" + "a" * 200, "environment", "RELAY_DATABASE_URL"]
    assert ["sinks.orders.type", "memory", "file", "relay.toml"] in rows
    assert ["sinks.orders.backoff.max", "10m", "default"] in rows


def test_show_as_json_is_one_document(tmp_path: Path) -> None:
    write(tmp_path, MEMORY)
    done = relay("config", "show", "--json", cwd=tmp_path, env={"RELAY_SINKS__ORDERS__WORKERS": "4"})
    rows = json.loads(done.stdout)
    assert {
        "key": "sinks.orders.workers",
        "value": 4,
        "origin": "environment RELAY_SINKS__ORDERS__WORKERS",
    } in rows
    assert {"key": "database.listen_url", "value": None, "origin": "default"} in rows


def test_show_on_a_terminal_is_a_table(tmp_path: Path) -> None:
    write(tmp_path, MEMORY + 'client.a = "[bold]"\n')
    ours, theirs = pty.openpty()
    env = environment(TERM="xterm", COLUMNS="120")
    process = subprocess.Popen([*RELAY, "config", "show"], cwd=tmp_path, env=env, stdout=theirs)
    os.close(theirs)
    shown = b""
    while part := _read(ours):
        shown += part
    os.close(ours)
    assert process.wait(timeout=30) == 0
    text = shown.decode()
    assert "───" in text
    assert "sinks.orders.backoff.max" in text
    assert "[bold]" in text


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # Linux: the other end is closed.
        return b""
