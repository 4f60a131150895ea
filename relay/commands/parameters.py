"""Types of command-line values that click does not have."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import click


def duration(text: str) -> float:
    """Seconds from `500ms`, `30s`, `10m`, `2h`, `7d`, as in the configuration file.

    Raises:
        click.BadParameter: it is none.
    """
    from relay.config.durations import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(f'expected {error}, got "{text}"') from error


def moment(text: str) -> timedelta | datetime:
    """A duration, which only the database may add to its clock or subtract from it; or a time with its zone.

    Raises:
        click.BadParameter: it is neither, or a time that leaves the zone to be guessed.
    """
    from relay.config.durations import parse_duration

    try:
        return timedelta(seconds=parse_duration(text))
    except ValueError as no_duration:
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            raise click.BadParameter(
                f'expected {no_duration}, or a time such as 2026-01-31T12:00:00Z, got "{text}"'
            ) from None
    if time.tzinfo is None:
        raise click.BadParameter(f'expected a time with its zone, such as 2026-01-31T12:00:00+02:00, got "{text}"')
    return time


def header(text: str) -> tuple[str, Any]:
    """Name and value from `NAME=TEXT` or `NAME:=JSON`.

    Raises:
        click.BadParameter: it is neither.
    """
    name, equals, value = text.partition("=")
    if not equals or not name.rstrip(":"):
        raise click.BadParameter(f'expected NAME=TEXT or NAME:=JSON, got "{text}"')
    if not name.endswith(":"):
        return name, value
    try:
        return name[:-1], json.loads(value)
    except ValueError as error:
        raise click.BadParameter(f"expected JSON after {name}=, got something else: {error}") from error
