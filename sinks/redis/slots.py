"""The fence in a Redis Cluster: one call for each slot, with a mark of its own in that slot.

Each call stands alone: its messages are delivered once, whatever becomes of the others. What the batch as a whole may
answer follows from that:

- every call was answered: the outcomes of all messages;
- some were refused, which is known: their messages are held, the others have their outcomes;
- of any it is unknown what became of it: the whole batch is. Asked again under the same token, the calls that were
  answered answer the same and push nothing; and whoever claims the messages later looks at the mark of each slot.

A node or a slot that is unwell is the whole sink's trouble only where the sink has no other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

import redis

from sinks.base import BadOption, Batch, Hold, Message, Outcome, SinkConfig, SinkUnavailable
from sinks.redis.cluster import Cluster, Tags, one_slot, slot_of
from sinks.redis.connection import request
from sinks.redis.errors import client_refused
from sinks.redis.plan import Part, Plan
from sinks.redis.script import Replicas, ask, mark_key, wait_ms
from sinks.redis.url import Address, Place

TAGS: Final = Tags()
NO_ANSWER: Final = (redis.ConnectionError, redis.TimeoutError)


class SlotFence:
    """A batch is a call for each slot that it pushes to.

    Args:
        name: what a message's stream is called.

    Raises:
        BadOption: order by key is asked for, but the streams of a key are in several slots.
    """

    def __init__(self, place: Place, config: SinkConfig, name: Callable[[Message], str]) -> None:
        if config.ordered and not one_slot(name, of_key=True):
            raise BadOption(
                "stream",
                'on a cluster with order = "key" a stream whose slot depends on nothing but the key, such as '
                '"orders", "orders:{key}" or "{{orders}}:{kind}"',
            )
        self._only_one_slot = one_slot(name, of_key=False)
        self._cluster = Cluster(place, config)
        self._timeout = config.send_timeout
        self._wait_replicas: int | None = config.options.wait_replicas
        self._wait_ms = wait_ms(config)
        self._token: UUID | None = None
        self._answers: dict[int, dict[int, str]] = {}
        """By slot, what was answered under this token. It is not asked for again: were that refused, the messages would
        be released as if they had never been sent, and nobody would look at the mark of this token."""
        self._doubtful: set[int] = set()
        """Slots of which it is not known what became of an earlier call under this token."""
        self._silent: set[Address | None] = set()
        """Nodes that did not answer the last time."""
        self._slots: dict[UUID, list[int]] = {}
        """Where the marks are of the tokens that may be settled."""

    @property
    def largest_argument(self) -> int:
        return self._cluster.largest_argument

    def open(self) -> None:
        self._cluster.open()

    def close(self) -> None:
        self._cluster.drop()

    def push(self, batch: Batch, plan: Plan) -> dict[int, Outcome]:
        parts = plan.parts(slot_of)
        if batch.token != self._token:
            self._token = batch.token
            self._doubtful.clear()
            self._answers.clear()
        outcomes = dict(plan.refused)
        refusals: dict[int, SinkUnavailable] = {}
        for slot, answer in self._ask_all(batch, parts).items():
            if isinstance(answer, SinkUnavailable):
                refusals[slot] = answer
            else:
                outcomes |= {message_id: plan.outcome(message_id, error) for message_id, error in answer.items()}
        self._raise_what_concerns_all(refusals, len(parts))
        for slot, refusal in refusals.items():
            outcomes |= {
                each: Hold(refusal.reason, plan.destination(each)) for each in [*parts[slot].ids, *parts[slot].refused]
            }
        self._slots = {batch.token: list(parts)}
        return outcomes

    def _ask_all(self, batch: Batch, parts: Mapping[int, Part]) -> dict[int, dict[int, str] | SinkUnavailable]:
        """For each slot the errors of its messages that are not delivered, or why there is no answer."""
        self._cluster.refresh(at_once=bool(self._silent))  # another node may serve their slots by now
        answers: dict[int, dict[int, str] | SinkUnavailable] = {}
        settled = self._settled(batch)
        silent: dict[Address | None, SinkUnavailable] = {}
        deadline = time.monotonic() + self._timeout
        # Nodes that do not answer come last: they must not use up the time of the others.
        for slot in sorted(parts, key=lambda slot: self._cluster.owner(slot) in self._silent):
            node = self._cluster.owner(slot)
            if slot in self._answers:
                answers[slot] = self._answers[slot]
            elif node in silent:
                answers[slot] = SinkUnavailable(silent[node].reason, unknown=False)
            elif time.monotonic() > deadline or batch.lost():
                answers[slot] = SinkUnavailable("there was no time left for it", unknown=False)
            else:
                answer = answers[slot] = self._ask(batch, slot, parts[slot], settled.pop(slot, ()))
                if isinstance(answer, SinkUnavailable) and (node is None or isinstance(answer.__cause__, NO_ANSWER)):
                    silent[node] = answer
        self._silent = set(silent)
        if not silent:
            self._forget(settled)
        return answers

    def _ask(self, batch: Batch, slot: int, part: Part, settled: Sequence[UUID]) -> dict[int, str] | SinkUnavailable:
        def call(*requests: bytes) -> list[Any]:
            return self._cluster.call(slot, *requests)

        count = self._cluster.replicas(slot) if self._wait_replicas is None else self._wait_replicas
        replicas = Replicas(count, self._wait_ms) if count else None
        try:
            answer = ask(call, batch, part, settled=settled, replicas=replicas, tag=TAGS[slot])
        except SinkUnavailable as error:
            self._cluster.drop(slot)
            if error.unknown:
                self._doubtful.add(slot)
            return error
        self._doubtful.discard(slot)
        self._answers[slot] = answer
        return answer

    def _raise_what_concerns_all(self, refusals: Mapping[int, SinkUnavailable], parts: int) -> None:
        """
        Raises:
            SinkUnavailable: a call may have been carried out or not, or none was.
        """
        doubtful = [refusal for slot, refusal in refusals.items() if slot in self._doubtful]
        if doubtful:
            raise SinkUnavailable(doubtful[0].reason, unknown=True) from doubtful[0]
        if len(refusals) < parts or not refusals:
            return
        first = next(iter(refusals.values()))
        everywhere = {self._cluster.owner(slot) for slot in refusals} >= self._cluster.nodes
        if self._only_one_slot or everywhere or client_refused(first.reason):
            raise SinkUnavailable(first.reason, unknown=False) from first

    def _settled(self, batch: Batch) -> dict[int, list[UUID]]:
        """The tokens whose marks may go, by slot."""
        found: dict[int, list[UUID]] = {}
        for token in batch.settled:
            for slot in self._slots.get(token, ()):
                found.setdefault(slot, []).append(token)
        return found

    def _forget(self, settled: Mapping[int, Sequence[UUID]]) -> None:
        """Delete marks in slots that this batch does not push to."""
        for slot, tokens in settled.items():
            with suppress(SinkUnavailable):  # they do not live for ever
                self._cluster.call(slot, *[request("DEL", mark_key(token, TAGS[slot])) for token in tokens])
