"""What several commands need: a connection, a document, a count in words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from relay.commands import Globals

if TYPE_CHECKING:
    from relay.config.settings import BaseSettings
    from relay.database.connection import Database
    from relay.errors import UsageError


def open_database(settings: BaseSettings, *, name: str, timeout: float | None = None) -> Database:
    """The configured database; it connects when it is first used.

    Args:
        name: what `pg_stat_activity` shows.
        timeout: seconds that one statement may take; default: as configured.
    """
    # Imported here because psycopg takes longer than `--help` may.
    from relay.database.connection import Database

    given = settings.database
    pooled = given.listen_url is not None
    return Database(settings.database_url, timeout=timeout or given.timeout, name=name, pooled=pooled, brief=True)


@contextmanager
def database_of(options: Globals, name: str, timeout: float | None = None) -> Iterator[tuple[Database, BaseSettings]]:
    """The configured database, whose schema fits this release, for the length of a command; and the configuration.

    Args:
        name: what `pg_stat_activity` shows.
        timeout: seconds that one statement may take; default: as configured.

    Raises:
        SchemaMismatch: the schema is missing, older or newer.
    """
    from relay.database.schema import check_version

    settings = options.base()
    database = open_database(settings, name=name, timeout=timeout)
    try:
        check_version(database)
        yield database, settings
    finally:
        database.close()


def unknown_sink(database: Database, sink: str) -> UsageError:
    """The error for a sink that the database does not have; names the nearest one."""
    from relay.config.tree import nearest
    from relay.errors import UsageError
    from relay.statements import statement

    names = [name for name, *_ in database.query(statement("admin/apply/configured_sinks"))]
    return UsageError(f'expected a sink that "relay apply" has written ({nearest(sink, names)}), got "{sink}"')


def check_sink(database: Database, sink: str) -> None:
    """Refuse a sink that the database does not have.

    Raises:
        UsageError: as `unknown_sink`.
    """
    from relay.statements import statement

    if all(name != sink for name, *_ in database.query(statement("admin/apply/configured_sinks"))):
        raise unknown_sink(database, sink)


def print_json(document: Any) -> None:
    """One JSON document on standard output, in ASCII: what a writer wrote must not reach a terminal as it is."""
    click.echo(json.dumps(document, indent=2, default=str))


def counted(number: int, noun: str) -> str:
    """`1 message`, `2,000 messages`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
