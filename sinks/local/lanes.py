"""What of a batch may start next: anything, but of a key in an ordered sink one message after another."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from sinks.base import Delivered, Message, Outcome, Retry

NOT_SENT = Retry("not started: an earlier message of its key was not delivered")


class Lanes:
    """Hands out positions, and keeps the outcomes."""

    def __init__(self, messages: Sequence[Message], *, ordered: bool) -> None:
        self._outcomes: list[Outcome | None] = [None] * len(messages)
        self._lanes: dict[str | int, deque[int]] = {}
        for position, message in enumerate(messages):
            lane = message.key if ordered and message.key is not None else position
            self._lanes.setdefault(lane, deque()).append(position)
        self._free = deque(self._lanes)
        self._taken: dict[int, str | int] = {}

    def take(self) -> int | None:
        """A message that may start now; None where there is none. It blocks its lane until it is settled."""
        if not self._free:
            return None
        lane = self._free.popleft()
        position = self._lanes[lane].popleft()
        self._taken[position] = lane
        return position

    def settle(self, position: int, outcome: Outcome) -> None:
        """What became of it. If it was not delivered, its lane ends there."""
        self._outcomes[position] = outcome
        lane = self._taken.pop(position)
        if isinstance(outcome, Delivered):
            if self._lanes[lane]:
                self._free.append(lane)
        else:
            for later in self._lanes[lane]:
                self._outcomes[later] = NOT_SENT

    def outcomes(self, rest: Outcome) -> list[Outcome]:
        """One a message, in order.

        Args:
            rest: of those that were not taken.
        """
        return [outcome or rest for outcome in self._outcomes]
