"""How the tests run servers: started, waited for, stopped, and nothing else touched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import packages
from tests.servers.base import (
    LOCALHOST,
    ServerUnavailable,
    cache_dir,
    free_port,
    locked,
    port_open,
    run_server,
    wait_until,
)

PYTHON = sys.executable


def alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has reaped yet does not."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def test_a_server_runs_for_the_length_of_a_block() -> None:
    port = free_port()
    argv = [PYTHON, "-m", "http.server", "--bind", LOCALHOST, str(port)]
    with run_server(argv, ready=lambda: port_open(port)) as server:
        assert server.running()
        assert alive(server.pid)
    assert not server.running()
    assert not port_open(port)


def test_what_a_server_leaves_behind_is_stopped_too(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"sleep 60 & echo $! > {pid_file}; exec sleep 60"
    with run_server(["sh", "-c", script], ready=lambda: pid_file.exists() and pid_file.read_text().strip()):
        child = int(pid_file.read_text())
        assert alive(child)
    wait_until(lambda: not alive(child))


def test_a_server_that_ignores_the_signal_is_killed() -> None:
    script = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    )
    with run_server([PYTHON, "-u", "-c", script], ready=lambda: True) as server:
        wait_until(lambda: "up" in server.tail())
        server.stop(timeout=0.2)
        assert server.process.returncode == -9


def test_a_frozen_server_can_be_stopped() -> None:
    with run_server(["sleep", "60"], ready=lambda: True) as server:
        server.freeze()
    assert server.process.returncode == -15


def test_a_server_that_ends_at_once_shows_what_it_said() -> None:
    with pytest.raises(RuntimeError, match=r"sh ended with 3; its log ends:\nno such disk"):
        with run_server(["sh", "-c", "echo no such disk; exit 3"], ready=lambda: False):
            pass


def test_a_server_that_never_answers_is_given_up_and_stopped(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"echo $$ > {pid_file}; exec sleep 60"
    with pytest.raises(RuntimeError, match=r"not come true within 0\.5 s"):
        with run_server(["sh", "-c", script], ready=lambda: False, timeout=0.5):
            pass
    assert not alive(int(pid_file.read_text()))


def test_waiting_says_what_went_wrong_last() -> None:
    def fails() -> None:
        raise KeyError("not yet")

    with pytest.raises(TimeoutError, match="the moon did not come true") as raised:
        wait_until(fails, timeout=0.05, what="the moon")
    assert isinstance(raised.value.__cause__, KeyError)


def test_the_cache_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "outbox-relay"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "outbox-relay"


def test_a_lock_keeps_other_processes_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    script = "from tests.servers.base import locked\nwith locked('x'): print('in', flush=True)"
    with locked("x"):
        root = Path(__file__).parents[3]
        other = subprocess.Popen([PYTHON, "-c", script], stdout=subprocess.PIPE, text=True, cwd=root)
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(timeout=0.5)
    assert other.communicate(timeout=10)[0] == "in\n"


def test_a_package_that_cannot_be_had_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ServerUnavailable, match="apt install no-such-server") as raised:
        packages.apt_install("no-such-server")
    assert raised.value.package == "apt install no-such-server"


def test_a_program_that_fails_shows_what_it_said() -> None:
    with pytest.raises(RuntimeError, match="sh ended with 4:\nbad luck"):
        packages.run_quietly("sh", "-c", "echo bad luck >&2; exit 4")
