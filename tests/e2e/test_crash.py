"""A short crash test; `make crash` runs a long one."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.full
@pytest.mark.timeout(300)
def test_relays_that_are_killed_lose_double_and_disorder_nothing() -> None:
    command = [sys.executable, "-m", "tests.crash", "--kills", "12", "--rate", "150", "--keep"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kafka-once: lost: 0" in done.stderr
