"""What a sink says, made fit for the database and the log: a sink is anybody's code, and repeats what brokers say."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from relay.claims.claim import Claim
from sinks.base import ARRIVED, DELIVERED, Batch, Delivered, Hold, Outcome, Reject, Retry, SinkUnavailable

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
        case Retry(reason, after, counted):
            # In this order "not a number" becomes 0.
            return Retry(tidy(reason), min(max(0.0, float(after)), LONGEST_WAIT_S), bool(counted))
        case Reject(reason):
            return Reject(tidy(reason))
        case Hold(reason, destination):
            return Hold(tidy(reason) or "no reason", tidy(destination) or None if destination else None)
        case _:
            raise TypeError(f"{type(outcome).__name__} is no outcome")


def not_sent(claim: Claim, held_back: Mapping[int, Outcome], *, fenced: bool) -> dict[int, Outcome]:
    """Outcomes, by position, of the messages of a claim that the sink is not given. What is given up unsent is for a
    fenced sink only, which asks its broker about it."""
    decided = dict(held_back)
    if claim.unsent and not fenced:
        reasons = ((at, claim.unsent.get(message.id)) for at, message in enumerate(claim.messages))
        decided.update((at, Reject(tidy(reason))) for at, reason in reasons if reason is not None)
    return decided


def batch_of(
    claim: Claim,
    decided: Mapping[int, Outcome],
    *,
    settled: Sequence[UUID],
    lost: Callable[[], bool],
    stopping: Callable[[], bool],
) -> Batch:
    """What the sink is given of a claim: all that is not decided."""
    messages = [one for at, one in enumerate(claim.messages) if at not in decided] if decided else claim.messages
    withdrawn = frozenset(one.id for one in messages if one.id in claim.unsent) if claim.unsent else frozenset[int]()
    return Batch(claim.token, messages, claim.claimed_us, tuple(settled), withdrawn, lost=lost, stopping=stopping)


def whole(claim: Claim, outcomes: Sequence[Outcome], decided: Mapping[int, Outcome]) -> Sequence[Outcome]:
    """One outcome for each message of the claim. What is given up unsent is rejected, unless the broker has it or could
    not be asked yet."""
    if not (decided or claim.unsent):
        return outcomes
    answers = iter(outcomes)
    found = [decided.get(at) or next(answers) for at in range(len(claim.messages))]
    for at, message in enumerate(claim.messages if claim.unsent else ()):
        if message.id in claim.unsent and not isinstance(found[at], (Delivered, Hold)):
            found[at] = Reject(tidy(claim.unsent[message.id]))
    return found


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
