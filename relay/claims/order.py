"""Order by key: from what a sink said to what the database is told, for sinks that promise it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from relay.claims.claim import Claim, StuckKey, Verdict
from relay.claims.verdict import Destinations
from relay.config.settings import SinkSettings
from sinks.base import DELIVERED, Delivered, Hold, Message, Outcome, Reject, Retry


def judge_ordered(
    claim: Claim, outcomes: Sequence[Outcome], settings: SinkSettings, destinations: Destinations
) -> Verdict:
    """What to write back. After a key's first message that is not delivered, its later ones count as not sent."""
    if not (claim.waiting or claim.stuck) and all(outcome is DELIVERED for outcome in outcomes):
        destinations.delays(())
        return Verdict(delivered=list(range(len(outcomes))))
    judge = _Judge(claim, settings, destinations.delays(outcomes))
    for position, (message, outcome) in enumerate(zip(claim.messages, outcomes, strict=True)):
        judge.message(position, claim.shard_of[position], message, outcome)
    verdict = judge.verdict
    verdict.untried.update(claim.unsent)
    verdict.unwell.extend(destinations.news())
    verdict.waiting.extend(claim.waiting)
    verdict.progressed = [key for key, done in judge.done.items() if done >= claim.stuck[key]]
    return verdict


class _Judge:
    """Goes through one claim's messages in id order."""

    def __init__(self, claim: Claim, settings: SinkSettings, delays: dict[str, float]) -> None:
        self.verdict = Verdict()
        self.waits: set[str] = set()
        """Keys that may not go on."""
        self.done: dict[str, int] = {}
        """Stuck keys, and the last message of each that is done with."""
        self._left: set[str] = set()
        """Keys whose remaining messages stay ready, to be claimed again."""
        self._claim = claim
        self._settings = settings
        self._delays = delays

    def message(self, position: int, shard: int, message: Message, outcome: Outcome) -> None:
        key = message.key
        if key in self.waits:
            self.verdict.waiting.append((shard, message))
        elif key not in self._left:
            self._judge(position, shard, message, outcome)

    def _judge(self, position: int, shard: int, message: Message, outcome: Outcome) -> None:
        key = message.key
        match outcome:
            case Delivered(before):
                self.verdict.delivered.append(position)
                self.verdict.arrived.extend([message] if before else [])
                self._done_with(message)
            case Retry(reason, after):
                if message.attempts >= (self._claim.max_attempts[position] or self._settings.max_attempts):
                    self._dead(shard, message, reason)
                elif key is None:
                    self.verdict.retry.append((message.id, reason, after))
                else:
                    self._stuck(StuckKey(shard, key, message.id, message.attempts, after, reason))
            case Reject(reason):
                self._dead(shard, message, reason)
            case Hold(reason, None):
                self.verdict.trouble = self.verdict.trouble or reason
                if key is not None:
                    self._left.add(key)
            case Hold(reason, destination):
                delay = self._delays[str(destination)]
                if key is None:
                    self.verdict.held.append((delay, reason, [message.id]))
                else:
                    self._stuck(StuckKey(shard, key, message.id, 0, delay, reason, counted=False))
            case _:
                assert_never(outcome)

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
