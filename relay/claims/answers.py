"""What a sink says, made fit for the database and the log: a sink is anybody's code, and repeats what brokers say."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from relay.claims.claim import Claim
from sinks.base import ARRIVED, DELIVERED, Batch, Delivered, Hold, Message, Outcome, Reject, Retry, SinkUnavailable

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
        case Delivered(before):
            return ARRIVED if before else DELIVERED
        case Retry(reason, after):
            # In this order "not a number" becomes 0.
            return Retry(tidy(reason), min(max(0.0, float(after)), LONGEST_WAIT_S))
        case Reject(reason):
            return Reject(tidy(reason))
        case Hold(reason, destination):
            return Hold(tidy(reason), str(destination) if destination else None)
        case _:
            raise TypeError(f"{type(outcome).__name__} is no outcome")


def to_send(claim: Claim, *, fenced: bool) -> Sequence[Message]:
    """What of a claim the sink is given. What is given up unsent is for a fenced sink only, which asks its broker."""
    if fenced or not claim.unsent:
        return claim.messages
    return [message for message in claim.messages if message.id not in claim.unsent]


def batch_of(
    claim: Claim, *, fenced: bool, settled: Sequence[UUID], lost: Callable[[], bool], stopping: Callable[[], bool]
) -> Batch:
    """What the sink is given of a claim."""
    withdrawn = frozenset(claim.unsent) if fenced else frozenset[int]()
    messages = to_send(claim, fenced=fenced)
    return Batch(claim.token, messages, claim.claimed_us, tuple(settled), withdrawn, lost=lost, stopping=stopping)


def with_unsent(claim: Claim, outcomes: Sequence[Outcome], *, fenced: bool) -> Sequence[Outcome]:
    """One outcome for each message of the claim: what is given up unsent is rejected, unless the broker has it or could
    not be asked yet."""
    if not claim.unsent:
        return outcomes
    given = iter(outcomes)
    whole: list[Outcome] = []
    for message in claim.messages:
        reason = claim.unsent.get(message.id)
        outcome = next(given) if fenced or reason is None else None
        undecided = isinstance(outcome, (Delivered, Hold))
        whole.append(outcome if outcome is not None and (reason is None or undecided) else Reject(tidy(reason)))
    return whole


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
