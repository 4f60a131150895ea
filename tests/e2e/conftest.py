"""What the tests of the command line share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.command import Command, configured


@pytest.fixture
def relay(request: pytest.FixtureRequest, relay_database_url: str, tmp_path: Path) -> Command:
    """The command with a file: the test module's `CONFIGURATION`, not applied; else `tests.command.SINKS`, applied."""
    text: str | None = getattr(request.module, "CONFIGURATION", None)
    if text is None:
        return configured(relay_database_url, tmp_path)
    command = Command(relay_database_url, tmp_path)
    command.configure(text)
    return command


@pytest.fixture
def conn(relay_database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """The application's own connection."""
    with psycopg.connect(relay_database_url, autocommit=True) as connection:
        yield connection
