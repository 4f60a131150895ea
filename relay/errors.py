"""Every error that this package raises on purpose, under one root."""

from __future__ import annotations


class RelayError(Exception):
    """Something failed. The text says what was expected, what came, and what to do."""

    exit_code = 1


class UsageError(RelayError):
    """Wrong usage or configuration: nothing was changed."""

    exit_code = 2


class CheckFailed(RelayError):
    """A check found something."""

    exit_code = 3


class ConfigError(UsageError):
    """The configuration has problems; all of them are in `problems`."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class SchemaMismatch(RelayError):
    """The database's schema is older or newer than this release understands."""


class DatabaseUnavailable(RelayError):
    """The database cannot be reached or refuses to work now. Trying again later may help."""


class DatabaseTooSlow(DatabaseUnavailable):
    """A statement took longer than it may."""


class InvalidMessage(RelayError, ValueError):
    """A message that no database or broker should see; the text names the path of the field."""


class NoTransaction(RelayError):
    """The connection would commit at once, so the message could not share the caller's transaction."""
