"""`relay demo` as a person runs it, on a smaller scale: everything adds up, and nothing stays."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.base import wait_until

pytestmark = pytest.mark.timeout(300)

DEMO = [sys.executable, "-m", "relay", "demo", "--messages", "1500"]
ROW = re.compile(r"(\w+ \w+) +([\d,]+) +([\d,]+) +([\d,]+) +([\d,]+) +([\d,]+)")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where the demo makes its temporary files: empty, and used by nobody, at the end."""
    with tempfile.TemporaryDirectory(prefix="relay-test-demo-") as name:
        folder = Path(name)
        folder.chmod(0o711)  # PostgreSQL runs as another user where we are root
        yield folder
        assert list(folder.iterdir()) == []
        assert processes(folder) == []


def environment(folder: Path) -> dict[str, str]:
    """Its environment; what would configure a relay must not matter."""
    return {**os.environ, "TMPDIR": str(folder), "RELAY_DATABASE_URL": "postgresql://nowhere.invalid/other"}


def processes(folder: Path) -> list[str]:
    """Command lines of the processes that work in this folder, or were told to make their temporary files there."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes().split(b"\0")
            works_in = str((process / "cwd").readlink())
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # gone by now, or somebody else's
            continue
        # Some servers write their titles over their environment.
        if f"TMPDIR={folder}".encode() in environment or works_in.startswith(str(folder)):
            found.append(command)
    return found


def test_adds_up(folder: Path) -> None:
    process = subprocess.Popen(DEMO, env=environment(folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        output, errors = process.communicate(timeout=250)
    finally:
        process.terminate()
        process.wait(30)
    assert (process.returncode, errors) == (0, ""), output
    assert "killed with SIGKILL while it held" in output
    rows = {title: [int(n.replace(",", "")) for n in numbers] for title, *numbers in ROW.findall(output)}
    assert list(rows) == ["Redis stream", "Sidekiq queues", "Kafka topic", "SQS queue"]
    for written, rolled_back, delivered, duplicates, lost in rows.values():
        assert (delivered, duplicates, lost) == (written, 0, 0)
        assert written > 0
        assert rolled_back > 0
    assert "It adds up" in output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_interrupted_in_the_middle(folder: Path, tmp_path: Path, number: signal.Signals) -> None:
    output = tmp_path / "output"
    with output.open("wb") as file:
        process = subprocess.Popen(DEMO, env=environment(folder), stdout=file, stderr=file)
    try:
        wait_until(lambda: b"written" in output.read_bytes(), timeout=200, what="the demo writing")
        assert len(processes(folder)) > 5
        process.send_signal(number)
        assert process.wait(10) == 130
    finally:
        process.terminate()  # so that it ends its servers, whatever failed here
        process.wait(30)
    assert output.read_text().endswith("Interrupted.\n")
