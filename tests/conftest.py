"""Real servers as fixtures, and a marker by folder."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.servers.base import ServerUnavailable
from tests.servers.given import take_from_environment

pytest_plugins = [
    "tests.servers.postgres",
    "tests.servers.redis",
    "tests.servers.elasticmq",
    "tests.servers.sqs_stub",
    "tests.harness.ordered",
    "tests.harness.outbox",
    "tests.security.roles",
    "tests.servers.kafka",
    "tests.servers.docker",
]

TESTS = Path(__file__).parent
NOT_FROM_WHEELS = {"kafka", "elasticmq", "docker"}
"""Fixtures that need more than Python packages."""
missing: dict[str, str] = {}
"""Servers that could not be had, and the packages that bring them."""


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput") or not getattr(config.option, "numprocesses", None):
        # Not in the process that only starts those which test: they would not inherit it.
        take_from_environment()
    # As Control-C does, so that the fixtures stop their servers when a CI system ends the run. And Control-C itself: a
    # shell's background job ignores it, and so would every command that a test starts and interrupts.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test by the folder it lives in, and whether a wheel brings its servers."""
    for item in items:
        item.add_marker(item.path.relative_to(TESTS).parts[0])
        if NOT_FROM_WHEELS & set(getattr(item, "fixturenames", ())):
            item.add_marker("full")


def pytest_exception_interact(call: pytest.CallInfo[object]) -> None:
    error = call.excinfo.value if call.excinfo else None
    if isinstance(error, ServerUnavailable):
        missing[error.server] = error.package


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where several processes test at once, tell the one that sums up."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["missing"] = missing


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    missing.update(getattr(node, "workeroutput", {}).get("missing", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one place what a person would install."""
    if missing:
        terminalreporter.section("servers that cannot be had here")
        for server, package in sorted(missing.items()):
            terminalreporter.line(f"{server}: {package}")
        terminalreporter.line("`make test-fast` runs what needs only Python wheels.")
