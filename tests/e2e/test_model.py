"""A short run of the randomized checker; `make model` runs a long one."""

from __future__ import annotations

import subprocess
import sys

import pytest

SEED = "3"
"""Any would do; the same one each time, so that a failure can be repeated."""


@pytest.mark.timeout(300)
def test_a_random_world_keeps_every_promise() -> None:
    asked = ["--seeds", "1", "--seconds", "12", "--seed", SEED, "--wheels", "--keep"]
    command = [sys.executable, "-m", "tests.model", *asked]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"seed {SEED}: lost: 0" in done.stderr
