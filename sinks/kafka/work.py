"""What of a batch is decided, and what goes out next.

Without order, everything goes out at once. With order, a *wave* goes out and is waited for, and it is made so that
nothing of it can pass an earlier message of its key:

- all messages of one partition leave as one record batch, which Kafka takes or refuses as a whole. So a wave holds at
  most as many bytes and messages as one record batch may;
- a key's messages are in one wave only as long as they go to the same topic;
- once a record batch was refused, its messages leave one a key and a record batch each, so that it shows which of
  them is unfit.

A transaction is all or nothing, so there one wave holds all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from sinks.base import DELIVERED, Hold, Message, Outcome, Retry
from sinks.kafka.client import Record

BEHIND: Final = "not sent: an earlier message of its key was not delivered"


class Wave(NamedTuple):
    """What goes out next."""

    positions: list[int]
    """In the batch, rising."""
    alone: bool
    """Each in a record batch of its own."""


class Limits(NamedTuple):
    """What surely leaves as one record batch, as long as it is for one partition."""

    bytes: int
    messages: int


class Work:
    """The messages of one batch.

    Args:
        records: one a message; None where it has an outcome already.
        outcomes: one a message; None where it is not decided.
        ordered: after the first message of a key that is not delivered, the key's later ones are not sent.
    """

    def __init__(
        self,
        messages: Sequence[Message],
        records: Sequence[Record | None],
        outcomes: list[Outcome | None],
        *,
        ordered: bool,
    ) -> None:
        self.messages = messages
        self.records = records
        self.outcomes = outcomes
        self._ordered = ordered
        self._suspects: set[int] = set()

    def record(self, position: int) -> Record:
        """Of a message that was not decided from the start."""
        record = self.records[position]
        if record is None:
            raise LookupError(f"message {self.messages[position].id} has no record")
        return record

    def suspect(self, position: int) -> None:
        """It was in a record batch that was refused."""
        self._suspects.add(position)

    def undecided(self) -> list[int]:
        """Positions, rising."""
        return [position for position, outcome in enumerate(self.outcomes) if outcome is None]

    def progress(self) -> tuple[int, int]:
        """Changes with everything that is found out."""
        return len(self.undecided()), len(self._suspects)

    def wave(self, limits: Limits | None = None) -> Wave:
        """What goes out next; without positions once all is decided.

        Args:
            limits: of one record batch; None where a transaction keeps the order.
        """
        if self._ordered:
            self._decide_those_behind()
        undecided = self.undecided()
        if self._ordered and limits is not None:
            return self._ordered_wave(undecided, limits)
        suspects = [position for position in undecided if position in self._suspects]
        if suspects and self._ordered:
            return Wave(undecided, alone=True)
        return Wave(suspects or undecided, alone=bool(suspects))

    def _ordered_wave(self, undecided: Sequence[int], limits: Limits) -> Wave:
        suspects = [position for position in self._first_of_each_key(undecided) if position in self._suspects]
        if suspects:
            return Wave(suspects, alone=True)
        if not self._suspects and self._fits(undecided, limits):
            return Wave(list(undecided), alone=False)
        wave: list[int] = []
        size = 0
        topics: dict[str, str] = {}
        waiting: set[str | None] = set()
        for position in undecided:
            key = self.messages[position].key
            record = self.record(position)
            if key in waiting:
                continue
            if key is not None and (position in self._suspects or topics.setdefault(key, record.topic) != record.topic):
                waiting.add(key)
                continue
            size += record.size
            if wave and (size > limits.bytes or len(wave) == limits.messages):
                break
            wave.append(position)
        return Wave(wave, alone=False)

    def _fits(self, positions: Sequence[int], limits: Limits) -> bool:
        """Whether all of these surely leave as one record batch a partition: mostly so, and quicker to find out."""
        records = [self.record(position) for position in positions]
        size = sum(record.size for record in records)
        one_topic = len({record.topic for record in records}) == 1
        return one_topic and len(records) <= limits.messages and size <= limits.bytes

    def _first_of_each_key(self, undecided: Sequence[int]) -> Iterator[int]:
        """And all that have no key."""
        seen: set[str] = set()
        for position in undecided if self._suspects else ():
            key = self.messages[position].key
            if key is None or key not in seen:
                yield position
            if key is not None:
                seen.add(key)

    def _decide_those_behind(self) -> None:
        if all(outcome is None or outcome == DELIVERED for outcome in self.outcomes):
            return
        stuck: dict[str, Outcome] = {}
        for position, outcome in enumerate(self.outcomes):
            key = self.messages[position].key
            if key is None:
                continue
            if outcome is None and key in stuck:
                first = stuck[key]
                self.outcomes[position] = Hold(BEHIND, first.destination) if isinstance(first, Hold) else Retry(BEHIND)
            elif outcome is not None and outcome != DELIVERED:
                stuck.setdefault(key, outcome)
