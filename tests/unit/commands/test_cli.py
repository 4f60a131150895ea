"""The command line itself: help, global options, errors and exit codes."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import click
import pytest

from relay.cli import COMMANDS, cli, main
from relay.commands import Globals
from relay.errors import CheckFailed, ConfigError, RelayError
from tests.unit.configured import MEMORY, write

RELAY = [sys.executable, "-m", "relay"]


def environment(**variables: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("RELAY_")} | variables


def relay(*args: str, cwd: Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the real command."""
    return subprocess.run(
        [*RELAY, *args],
        cwd=cwd,
        env=environment(**(env or {})),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def call(*args: str) -> int:
    """Run the command in this process; return its exit code."""
    with pytest.raises(SystemExit) as stopped:
        main(args)
    assert isinstance(stopped.value.code, int)
    return stopped.value.code


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(options: Globals) -> None:
        raise error

    monkeypatch.setattr(Globals, "settings", fail)


def test_help_names_every_command_and_imports_nothing_heavy(tmp_path: Path) -> None:
    heavy = ("pydantic", "rich", "psycopg", "structlog", "tenacity", "prometheus_client", "redis", "sinks")
    code = (
        "import sys\nfrom relay.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
        f"print('heavy:', [name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "heavy: []"
    for name, command in COMMANDS.items():
        assert f"  {name} " in done.stdout
        assert command.help in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_where_the_table_says(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.name == name
    assert call(name, "--help") == 0
    assert "Usage: relay" in capsys.readouterr().out


def test_version(tmp_path: Path) -> None:
    done = relay("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "relay 0.1.0\n")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["rnu"], 'expected a command (the nearest is "run"), got "rnu"'),
        (["--colour"], "No such option"),
        (["config", "chekc"], "No such command"),
        (["init", "extra"], "unexpected extra argument"),
        (["migrate", "--sql", "--after", "9999"], "expected a version up to"),
        ([], "Usage: relay"),
    ],
)
def test_wrong_usage(tmp_path: Path, args: list[str], words: str) -> None:
    done = relay(*args, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr


@pytest.mark.parametrize(
    "args",
    [
        ["--config", "other.toml", "config", "check"],
        ["config", "--config", "other.toml", "check"],
        ["config", "check", "--config", "other.toml"],
        ["config", "check", "--config=other.toml", "--debug"],
    ],
)
def test_global_options_stand_anywhere(tmp_path: Path, args: list[str]) -> None:
    write(tmp_path, MEMORY).rename(tmp_path / "other.toml")
    done = relay(*args, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (RelayError("expected x,\n  got redis://:pw@h\n"), 1, "Error: expected x,; got redis://:***@h\n"),
        (ConfigError(["a: one", "b: two"]), 2, "a: one\nb: two\n"),
        (CheckFailed("found"), 3, "Error: found\n"),
        (
            ZeroDivisionError("by\nzero"),
            1,
            "Error: ZeroDivisionError: by; zero (a fault of relay itself; --debug shows where)\n",
        ),
        (click.Abort(), 1, "Error: stopped at a question; nothing was changed.\n"),
        (click.exceptions.Exit(3), 3, ""),
        (click.ClickException("wrong"), 1, "Error: wrong\n"),
        (KeyboardInterrupt(), 130, "\nInterrupted.\n"),
        (BrokenPipeError(errno.EPIPE, "closed"), 1, ""),
    ],
)
def test_errors_and_exit_codes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, text: str
) -> None:
    monkeypatch.setattr("sys.stdout", sys.stdout)  # which click replaces after a broken pipe
    monkeypatch.setattr("sys.stderr", sys.stderr)
    failing(monkeypatch, error)
    assert call("config", "check") == code
    assert capsys.readouterr().err == text


def test_debug_adds_the_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    failing(monkeypatch, RelayError("went wrong"))
    for args in (["--debug", "config", "check"], ["config", "check", "--debug"]):
        assert call(*args) == 1
        lines = capsys.readouterr().err.splitlines()
        assert lines[0].startswith("Traceback")
        assert lines[-1] == "Error: went wrong"


def test_ctrl_c(tmp_path: Path) -> None:
    fifo = tmp_path / "relay.toml"
    os.mkfifo(fifo)
    process = subprocess.Popen([*RELAY, "config", "check"], cwd=tmp_path, env=environment(), stderr=subprocess.PIPE)
    writer = _open_once_read(fifo)
    try:
        errors = _interrupted(process)
    finally:
        os.close(writer)
    assert (process.returncode, errors.decode().strip()) == (130, "Interrupted.")


def _interrupted(process: subprocess.Popen[bytes]) -> bytes:
    """What it wrote. A signal in the moment before it blocks in a read is noticed only with the next one."""
    for _ in range(6):
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=5)[1]
    raise TimeoutError("the command cannot be interrupted")


def _open_once_read(fifo: Path) -> int:
    """The pipe, open for writing, once somebody reads it."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            time.sleep(0.01)
    raise TimeoutError("the command never read its configuration")


@pytest.mark.parametrize("args", [["config", "show"], ["config", "show", "--json"], ["--help"]])
def test_a_reader_that_goes_away(tmp_path: Path, args: list[str]) -> None:
    write(tmp_path, MEMORY)
    assert _without_reader([*RELAY, *args], tmp_path) == (1, b"")


def test_a_reader_that_goes_away_before_the_last_line(tmp_path: Path) -> None:
    code = (
        "import click\nfrom relay.cli import main\nfrom relay.commands import Globals\n"
        "def settings(options):\n    print('still in the buffer')\n    raise click.exceptions.Exit(0)\n"
        "Globals.settings = settings\nmain(['config', 'check'])\n"
    )
    assert _without_reader([sys.executable, "-c", code], tmp_path) == (1, b"")


def _without_reader(command: list[str], cwd: Path) -> tuple[int, bytes]:
    """Exit code and standard error of a command whose output nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            command, cwd=cwd, env=environment(), stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False
        )
    finally:
        os.close(writer)
    return done.returncode, done.stderr


@pytest.mark.parametrize("stream", [0, 1, 2])
def test_a_standard_stream_that_is_closed(tmp_path: Path, stream: int) -> None:
    write(tmp_path, MEMORY)
    command = f"{sys.executable} -m relay config show {stream}>&-"
    done = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert ("sinks." in done.stdout) == (stream != 1)


def test_an_output_that_cannot_be_written(tmp_path: Path) -> None:
    write(tmp_path, MEMORY)
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*RELAY, "config", "show"],
            cwd=tmp_path,
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, b"Error: cannot write the output: No space left on device\n")
