"""Connections that break at any byte: nothing lost, nothing twice, whoever asks again."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from uuid import uuid4

import pytest
import redis

from sinks.base import DELIVERED, Batch, ClaimRevoked, Sink, SinkUnavailable
from sinks.testing import batch, message
from tests.redis_sinks import jobs, payloads, sidekiq, streams
from tests.servers.proxy import Direction, FaultProxy
from tests.servers.redis import every_redis

BATCHES = 60


class Relay:
    """What a relay does with a sink, in short: asks again, gives up and is followed by another, wakes up late."""

    def __init__(self, sink: Sink, proxy: FaultProxy, chance: random.Random) -> None:
        self.sink = sink
        self.proxy = proxy
        self.chance = chance
        self.settled: list[Batch] = []
        self.stale: list[Batch] = []
        self.unknown = 0

    def deliver(self, claim: Batch) -> None:
        """See to it that a claim's messages are delivered, by it or by later claims."""
        silent = False
        while True:
            try:
                self._maybe_cut()
                assert list(self.sink.send(claim)) == [DELIVERED] * len(claim.messages)
                self._maybe_wake_up()
            except SinkUnavailable as error:
                silent |= error.unknown
                self.unknown += error.unknown
                if self.chance.random() < 0.3:
                    claim, silent = self._next_owner(claim, silent), False
            else:
                self.settled = [] if silent else [claim]
                return

    def _maybe_cut(self) -> None:
        if self.chance.random() < 0.7:
            direction = self.chance.choice(list(Direction))
            largest = 4000 if direction is Direction.TO_SERVER else 60
            self.proxy.cut_after(self.chance.randint(1, largest), direction, reset=self.chance.random() < 0.5)

    def _next_owner(self, claim: Batch, silent: bool) -> Batch:
        if not silent:
            return batch(claim.messages)
        self.stale.append(claim)
        return batch([one._replace(prior_tokens=(*one.prior_tokens, claim.token)) for one in claim.messages])

    def _maybe_wake_up(self) -> None:
        """A sender that was believed dead asks once more."""
        if self.stale and self.chance.random() < 0.3:
            try:
                outcomes = self.sink.send(self.chance.choice(self.stale))
            except (ClaimRevoked, SinkUnavailable):
                return
            assert set(outcomes) == {DELIVERED}


Opener = Callable[..., AbstractContextManager[Sink]]
Reader = Callable[[redis.Redis], list[int]]


def _numbers_in_queue(client: redis.Redis) -> list[int]:
    return [job["args"][0] for job in jobs(client)]


def _numbers_in_stream(client: redis.Redis) -> list[int]:
    return [int(payload[1:].split(b",")[0]) for payload in payloads(client)]


@every_redis
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    ("opener", "numbers"), [(sidekiq, _numbers_in_queue), (streams, _numbers_in_stream)], ids=["sidekiq", "streams"]
)
def test_cut_at_any_byte_loses_and_doubles_nothing(
    redis_url: str, redis_client: redis.Redis, opener: Opener, numbers: Reader, seed: int
) -> None:
    chance = random.Random(seed)
    with FaultProxy.before(redis_url) as proxy, opener(proxy.url(redis_url), timeout=2.0) as sink:
        relay = Relay(sink, proxy, chance)
        for number in range(BATCHES):
            messages = [message(20 * number + at) for at in range(20)]
            relay.deliver(batch(messages, token=uuid4(), settled=[one.token for one in relay.settled]))
    assert Counter(numbers(redis_client)) == Counter(range(20 * BATCHES))
    assert relay.unknown > 5, "the test must have broken something"
    assert relay.stale
