"""The options that choose dead messages."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from relay.commands.parameters import moment

if TYPE_CHECKING:
    from relay.admin.dead import Filters
    from relay.database.connection import Database

F = TypeVar("F", bound=Callable[..., Any])


def filters(command: F) -> F:
    """The options that choose dead messages."""
    for decorate in reversed(
        [
            click.argument("ids", nargs=-1, type=int, metavar="[ID]..."),
            click.option("--sink", metavar="NAME", help="Of this sink."),
            click.option("--kind", metavar="PATTERN", help="Of these kinds: * any run of characters, ? one."),
            click.option("--error", metavar="TEXT", help="Whose error contains this text."),
            click.option("--since", type=moment, metavar="TIME", help="Dead since: 2h (ago), or 2026-01-31T12:00:00Z."),
            click.option("--until", type=moment, metavar="TIME", help="Dead before, written in the same ways."),
            click.option("--all", "everything", is_flag=True, help="All of them."),
        ]
    ):
        command = decorate(command)
    return command


def asked_of(
    database: Database, *, since: timedelta | datetime | None, until: timedelta | datetime | None, **asked: Any
) -> Filters:
    from relay.admin.dead import Filters, ago_or_at

    ids = list(asked.pop("ids")) or None
    return Filters(ids, since=ago_or_at(database, since), until=ago_or_at(database, until), **asked)
