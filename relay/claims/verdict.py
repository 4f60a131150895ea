"""From what a sink said to what the database is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from relay.claims.claim import Claim, Verdict
from relay.claims.destinations import Destinations, named
from sinks.base import DELIVERED, Delivered, Hold, Outcome, Reject, Retry

UNCOUNTED_RETRY_S = 1.0
"""What was not sent for no fault of its own, and of no destination, waits so long at least."""


def judge(claim: Claim, outcomes: Sequence[Outcome], max_attempts: int, destinations: Destinations) -> Verdict:
    """What to write back.

    Args:
        max_attempts: for messages that name none.
    """
    found = destinations.findings(claim, outcomes)
    if not found and all(outcome is DELIVERED for outcome in outcomes):
        return Verdict(delivered=list(range(len(outcomes))))
    verdict = Verdict(destinations=found, untried=set(claim.unsent))
    held: dict[tuple[float, str], list[int]] = {}
    for position, (message, outcome) in enumerate(zip(claim.messages, outcomes, strict=True)):
        match outcome:
            case Delivered(before):
                verdict.delivered.append(position)
                if before:
                    verdict.arrived.append(message)
            case Retry(reason, after, counted=False):
                held.setdefault((uncounted_wait(after), reason), []).append(message.id)
            case Retry(reason, after):
                if message.attempts >= (claim.max_attempts[position] or max_attempts):
                    verdict.dead.append((message.id, reason))
                else:
                    verdict.retry.append((message.id, reason, after))
            case Reject(reason):
                verdict.dead.append((message.id, reason))
            case Hold(reason, destination) if destination is None or destination == destinations.sole:
                verdict.trouble = verdict.trouble or named(destination or "", reason)
                held.setdefault((0.0, reason), []).append(message.id)
            case Hold(_, destination):
                found[str(destination)].ids.append(message.id)
            case _:
                assert_never(outcome)
    verdict.held.extend((delay, reason, ids) for (delay, reason), ids in held.items())
    return verdict


def uncounted_wait(after: float) -> float:
    """Seconds that a message waits whose attempt did not count."""
    return max(after, UNCOUNTED_RETRY_S)
