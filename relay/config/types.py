"""The kinds of values that settings have. What a validator raises says what was expected."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer

from relay.config.durations import LARGEST, format_duration, format_size, parse_duration, parse_size


def _connection_string(url: str) -> str:
    try:
        if url.strip() and not _misread(url, conninfo_to_dict(url)):
            return url
    except ProgrammingError:
        pass  # psycopg's own text may quote a part of the password.
    raise ValueError("a PostgreSQL connection string, postgresql://user@host/database or key=value")


def _misread(url: str, parts: Mapping[str, object]) -> bool:
    """Whether a password that was not percent-encoded was taken for a host or a port, which errors would show."""
    host, port = str(parts.get("host", "")), str(parts.get("port", ""))
    return "://" in url and ("@" in host or not re.fullmatch(r"[\d,]*", port))


def _no_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("a whole number")
    return value


def _positive(seconds: float) -> float:
    if seconds <= 0:
        raise ValueError("a duration above zero")
    return seconds


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


Url = Annotated[
    str,
    AfterValidator(_connection_string),
    Field(description="a PostgreSQL connection string here or in RELAY_DATABASE_URL"),
]
Seconds = Annotated[float, BeforeValidator(parse_duration), AfterValidator(_positive), PlainSerializer(format_duration)]
Size = Annotated[int, BeforeValidator(parse_size), PlainSerializer(format_size)]
Count = Annotated[int, BeforeValidator(_no_boolean), Field(ge=1, le=LARGEST)]
Shards = Annotated[int, BeforeValidator(_no_boolean), Field(ge=1, le=1024)]
Bucket = Annotated[int, BeforeValidator(_no_boolean), Field(ge=0, le=100)]
Lower = BeforeValidator(_lower)
"""Takes a word in any case."""
