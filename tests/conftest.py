"""Real servers as fixtures, and a marker by folder."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

pytest_plugins = ["tests.servers.postgres", "tests.servers.redis"]

TESTS = Path(__file__).parent


def pytest_configure() -> None:
    # So that the fixtures stop their servers when a person or a CI system ends the run.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test by the folder it lives in."""
    for item in items:
        item.add_marker(item.path.relative_to(TESTS).parts[0])
