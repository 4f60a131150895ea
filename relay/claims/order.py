"""Order by key: from what a sink said to what the database is told, for sinks that promise it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from relay.claims.claim import Claim, StuckKey, Verdict
from relay.claims.destinations import Destinations, named
from relay.claims.verdict import uncounted_wait
from relay.config.settings import SinkSettings
from sinks.base import DELIVERED, Delivered, Hold, Message, Outcome, Reject, Retry


def judge_ordered(
    claim: Claim, outcomes: Sequence[Outcome], settings: SinkSettings, destinations: Destinations
) -> Verdict:
    """What to write back. After a key's first message that is not delivered, its later ones count as not sent."""
    found = destinations.findings(claim, outcomes)
    special = claim.waiting or claim.stuck or found
    if not special and all(outcome is DELIVERED for outcome in outcomes):
        return Verdict(delivered=list(range(len(outcomes))))
    judge = _Judge(claim, settings, destinations.sole)
    judge.verdict.destinations = found
    for position, (message, outcome) in enumerate(zip(claim.messages, outcomes, strict=True)):
        judge.message(position, claim.shard_of[position], message, outcome)
    verdict = judge.verdict
    verdict.untried.update(claim.unsent)
    verdict.waiting.extend(claim.waiting)
    verdict.progressed = [key for key, done in judge.done.items() if done >= claim.stuck[key]]
    return verdict


class _Judge:
    """Goes through one claim's messages in id order."""

    def __init__(self, claim: Claim, settings: SinkSettings, sole: str | None) -> None:
        self.verdict = Verdict()
        self.waits: set[str] = set()
        """Keys that may not go on."""
        self.done: dict[str, int] = {}
        """Stuck keys, and the last message of each that is done with."""
        self._left: set[str] = set()
        """Keys whose remaining messages stay ready, to be claimed again."""
        self._claim = claim
        self._settings = settings
        self._sole = sole

    def message(self, position: int, shard: int, message: Message, outcome: Outcome) -> None:
        key = message.key
        if key in self.waits:
            self.verdict.waiting.append((shard, message))
        elif key not in self._left:
            self._judge(position, shard, message, outcome)

    def _judge(self, position: int, shard: int, message: Message, outcome: Outcome) -> None:
        match outcome:
            case Delivered(before):
                self.verdict.delivered.append(position)
                self.verdict.arrived.extend([message] if before else [])
                self._done_with(message)
            case Retry():
                self._retry(position, shard, message, outcome)
            case Reject(reason):
                self._dead(shard, message, reason)
            case Hold():
                self._hold(shard, message, outcome)
            case _:
                assert_never(outcome)

    def _retry(self, position: int, shard: int, message: Message, outcome: Retry) -> None:
        reason = outcome.reason
        if not outcome.counted:
            after = uncounted_wait(outcome.after)
            if message.key is None:
                self.verdict.held.append((after, reason, [message.id]))
            else:
                self._stuck(StuckKey(shard, message.key, message.id, 0, after, reason, counted=False))
        elif message.attempts >= (self._claim.max_attempts[position] or self._settings.max_attempts):
            self._dead(shard, message, reason)
        elif message.key is None:
            self.verdict.retry.append((message.id, reason, outcome.after))
        else:
            self._stuck(StuckKey(shard, message.key, message.id, message.attempts, outcome.after, reason))

    def _hold(self, shard: int, message: Message, outcome: Hold) -> None:
        reason, name = outcome.reason, outcome.destination
        if name is None or name == self._sole:
            self.verdict.trouble = self.verdict.trouble or named(name or "", reason)
            # It stays ready, and says why.
            self.verdict.held.append((0.0, reason, [message.id]))
            if message.key is not None:
                self._left.add(message.key)
        elif message.key is None:
            self.verdict.destinations[name].ids.append(message.id)
        else:
            self._stuck(StuckKey(shard, message.key, message.id, 0, 0.0, reason, counted=False, destination=name))

    def _done_with(self, message: Message) -> None:
        if message.key in self._claim.stuck and message.key is not None:
            self.done[message.key] = message.id

    def _dead(self, shard: int, message: Message, reason: str) -> None:
        self.verdict.dead.append((message.id, reason))
        if message.key is None:
            return
        if self._settings.after_dead == "block":
            self._stuck(StuckKey(shard, message.key, message.id, 0, 0.0, reason, blocked=True))
        else:
            # It was not sent, so neither was what came after it; that is ready and goes with the next claim.
            self._left.add(message.key)
            self._done_with(message)

    def _stuck(self, key: StuckKey) -> None:
        self.verdict.stuck.append(key)
        self.waits.add(key.key)
