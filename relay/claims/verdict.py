"""From what a sink said to what the database is told."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from relay.backoff import Backoff
from relay.claims.claim import Claim, Verdict
from sinks.base import DELIVERED, Delivered, Hold, Outcome, Reject, Retry

SHORTEST_HOLD_S = 0.1
FIRST_HOLD_S = 1.0
LONGEST_HOLD_S = 10.0


@dataclass(slots=True)
class _Unwell:
    backoff: Backoff
    try_at: float = 0.0
    forget_at: float = 0.0


class Destinations:
    """The circuits of a sink's single destinations: how long what goes to each one waits."""

    def __init__(self) -> None:
        self._unwell: dict[str, _Unwell] = {}
        self._news: list[tuple[str, str]] = []

    def delays(self, outcomes: Sequence[Outcome]) -> dict[str, float]:
        """Seconds to wait for each destination that a batch found unwell. However many batches find it so meanwhile,
        the wait grows only once it is over."""
        reasons = {
            outcome.destination: outcome.reason
            for outcome in reversed(outcomes)
            if isinstance(outcome, Hold) and outcome.destination
        }
        # What is delivered does not say where to. So one that is well again is known by this: nothing is held for it
        # any more, although what was held must have come back.
        now = time.monotonic()
        self._unwell = {name: known for name, known in self._unwell.items() if now < known.forget_at}
        self._news = [(name, reason) for name, reason in reasons.items() if name not in self._unwell]
        delays = {}
        for name in reasons:
            known = self._unwell.setdefault(name, _Unwell(Backoff(FIRST_HOLD_S, LONGEST_HOLD_S)))
            if now >= known.try_at:
                known.try_at = now + known.backoff.next()
                known.forget_at = known.try_at + LONGEST_HOLD_S
            delays[name] = max(known.try_at - now, SHORTEST_HOLD_S)
        return delays

    def news(self) -> list[tuple[str, str]]:
        """Those that the last batch found unwell and none before it, with the reason."""
        return self._news


def judge(claim: Claim, outcomes: Sequence[Outcome], max_attempts: int, destinations: Destinations) -> Verdict:
    """What to write back.

    Args:
        max_attempts: for messages that name none.
    """
    delays = destinations.delays(outcomes)
    if not delays and all(outcome is DELIVERED for outcome in outcomes):
        return Verdict(delivered=list(range(len(outcomes))))
    verdict = Verdict(unwell=destinations.news(), untried=set(claim.unsent))
    held: dict[tuple[float, str], list[int]] = {}
    for position, (message, outcome) in enumerate(zip(claim.messages, outcomes, strict=True)):
        match outcome:
            case Delivered(before):
                verdict.delivered.append(position)
                if before:
                    verdict.arrived.append(message)
            case Retry(reason, after):
                if message.attempts >= (claim.max_attempts[position] or max_attempts):
                    verdict.dead.append((message.id, reason))
                else:
                    verdict.retry.append((message.id, reason, after))
            case Reject(reason):
                verdict.dead.append((message.id, reason))
            case Hold(reason, None):
                verdict.trouble = verdict.trouble or reason
                held.setdefault((0.0, reason), []).append(message.id)
            case Hold(reason, destination):
                held.setdefault((delays[str(destination)], reason), []).append(message.id)
            case _:
                assert_never(outcome)
    verdict.held.extend((delay, reason, ids) for (delay, reason), ids in held.items())
    return verdict
