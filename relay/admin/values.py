"""Values that a writer supplied, shown to a person whatever they are."""

from __future__ import annotations

from datetime import UTC, datetime

from relay.database.connection import us_since_1970

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def text_of(raw: bytes | None, encoding: str) -> str | None:
    """A text from the bytes that the database keeps; what is none in its encoding is replaced."""
    return None if raw is None else bytes(raw).decode(encoding, errors="replace")


def time_of(binary: int) -> datetime:
    """A time from PostgreSQL's binary format; what is before the year 1 or after 9999 is shown as their ends."""
    try:
        return datetime.fromtimestamp(us_since_1970(binary) / 1_000_000, UTC)
    except (ValueError, OverflowError, OSError):
        return FIRST if binary < 0 else LAST


def shown(text: str) -> str:
    """A text on a terminal: characters that it would obey are escaped."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
