"""Servers that a person gives to the tests, by `RELAY_TEST_…_URL`."""

from __future__ import annotations

import os

PREFIX = "RELAY_TEST_"

_given: dict[str, str] = {}


def take_from_environment() -> None:
    """Note what is given, and take it out: a command under test refuses variables that it does not know."""
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        _given[name] = os.environ.pop(name)


def given(name: str) -> str | None:
    """The value of `RELAY_TEST_NAME`; None where nobody gave it."""
    return _given.get(PREFIX + name)
