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


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_bug_that_was_planted_is_found() -> None:
    """All of them: `python -m tests.model --planted`. What a bug breaks shows within a world or two."""
    asked = ["--planted", "prior token dropped", "--seeds", "4", "--seconds", "15", "--seed", "1", "--keep"]
    command = [sys.executable, "-m", "tests.model", *asked]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "second copies" in done.stdout
