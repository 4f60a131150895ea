"""What a sink says, made fit for the database and the log: a sink is anybody's code, and repeats what brokers say."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Any

from sinks.base import DELIVERED, Delivered, Hold, Outcome, Reject, Retry, SinkUnavailable

LONGEST_REASON = 500
"""Characters."""
LONGEST_WAIT_S = 365 * 86_400.0


def checked(outcomes: Sequence[Any]) -> Sequence[Outcome]:
    """The outcomes, with reasons and waiting times that can be written down.

    Raises:
        TypeError: one of them is none.
    """
    if all(outcome is DELIVERED for outcome in outcomes):
        return outcomes
    return [_checked(outcome) for outcome in outcomes]


def _checked(outcome: Any) -> Outcome:
    match outcome:
        case Delivered():
            return DELIVERED
        case Retry(reason, after, counted):
            # In this order "not a number" becomes 0.
            return Retry(tidy(reason), min(max(0.0, float(after)), LONGEST_WAIT_S), bool(counted))
        case Reject(reason):
            return Reject(tidy(reason))
        case Hold(reason, destination):
            return Hold(tidy(reason) or "no reason", tidy(destination) or None if destination else None)
        case _:
            raise TypeError(f"{type(outcome).__name__} is no outcome")


def tidy(reason: object) -> str:
    """One line of bounded length, without what PostgreSQL's text cannot hold."""
    start = str(reason)[: 2 * LONGEST_REASON]
    printable = "".join(character if character.isprintable() else " " for character in start)
    return " ".join(printable.split())[:LONGEST_REASON]


def why(error: BaseException) -> str:
    """What to say of something that a sink raised."""
    if isinstance(error, SinkUnavailable):
        return tidy(error.reason)
    return f"{type(error).__name__} in the sink"


def where(error: BaseException) -> str:
    """Where it was raised. Its text is left out: that may quote a payload."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{place.filename}:{place.lineno}"
