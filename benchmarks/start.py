"""How long a new process takes to print its help, and to import what writes messages.

What is imported, and what is not, is the tests' matter; this is its time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import relay
from benchmarks.report import Report

ROUNDS = 20

IMPORT = """
import time
began = time.perf_counter()
from relay import publish, enqueue, publish_many, enqueue_many
print(time.perf_counter() - began)
"""


def main() -> None:
    report = Report("start")
    report.add("relay --help", _best(_help), "ms", versus=f"best of {ROUNDS}", at_most=300)
    report.add("from relay import publish", _best(_import), "ms", versus=f"best of {ROUNDS}", at_most=150)
    report.finish()


def _best(measure: Callable[[], float]) -> float:
    return min(measure() for _ in range(ROUNDS)) * 1000


def _help() -> float:
    started = time.perf_counter()
    subprocess.run([Path(sys.executable).with_name("relay"), "--help"], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def _import() -> float:
    # Without site-packages: what other tools have every process load is not counted.
    argv = [sys.executable, "-S", "-c", IMPORT]
    env = os.environ | {"PYTHONPATH": str(Path(relay.__file__).parents[1])}
    return float(subprocess.run(argv, env=env, check=True, stdout=subprocess.PIPE).stdout)


if __name__ == "__main__":
    main()
