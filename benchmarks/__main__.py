"""Runs every benchmark, each in a process of its own; exits with the worst of their exit codes."""

from __future__ import annotations

import subprocess
import sys

NAMES = ("start", "drain", "insert", "horizon", "latency", "memory", "order", "wal", "brokers")


def main() -> int:
    return max(
        subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *sys.argv[1:]], check=False).returncode
        for name in NAMES
    )


if __name__ == "__main__":
    sys.exit(main())
