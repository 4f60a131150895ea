"""The fence: how a batch gets into Redis at most once, whatever dies on the way.

A batch is one call of one script, `redis_fence.lua`, which keeps a small mark under the claim's token:

- asked again under the same token, it answers as the first time and pushes nothing;
- the marks of its messages' earlier claims say which of them are delivered already; an earlier claim without a mark
  is revoked, so that its sender, should it wake up, is refused;
- a refusal of the whole batch comes before anything is pushed; what fails for single messages is in the mark.

It holds as far as Redis keeps what it acknowledged. An answer speaks of its own call: where an earlier call for the
same batch stayed without one, a refusal of the next call does not tell what became of the first.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import ClassVar, Final
from uuid import UUID

from redis.exceptions import NoScriptError

from sinks.base import DELIVERED, Batch, ClaimRevoked, Message, Outcome, Sink, SinkConfig, SinkOptions, SinkUnavailable
from sinks.redis_connection import Argument, RedisConnection, RedisUrl, bulks
from sinks.redis_errors import describe
from sinks.redis_plan import Plan, Push

SCRIPT: Final = Path(__file__).with_name("redis_fence.lua").read_bytes()
SHA: Final = hashlib.sha1(SCRIPT, usedforsecurity=False).hexdigest()

MARK_SECONDS: Final = 7 * 24 * 3600
"""How long a mark lives that nobody deletes: longer than a stalled sender could stay asleep."""


def mark_key(token: UUID) -> str:
    """The key of a claim's mark."""
    return f"outbox-relay:mark:{token.hex}"


class RedisOptions(SinkOptions):
    """Configuration keys of every sink that writes to Redis."""

    url: RedisUrl
    """`redis://`, `rediss://` (TLS) or `unix://`."""


class RedisSink(Sink):
    """Everything about a sink in Redis but what is pushed."""

    Options: ClassVar[type[SinkOptions]] = RedisOptions
    fenced = True

    def __init__(self, config: SinkConfig) -> None:
        """
        Raises:
            ValueError: redis-py does not know an option of `client`.
        """
        super().__init__(config)
        self.redis = RedisConnection(config.options.url, config)

    @abstractmethod
    def pusher(self, batch: Batch) -> Callable[[Message], Push]:
        """What makes the pushes of this batch; it raises `Unsendable` or `TemplateError` for a message to reject."""

    def open(self) -> None:
        self.redis.open()

    def close(self) -> None:
        self.redis.drop()

    def send(self, batch: Batch) -> Sequence[Outcome]:
        if not batch.messages:
            return []
        plan = Plan(batch.messages, self.pusher(batch), ordered=self.config.ordered)
        failures = self._call(batch, plan)
        if not failures:
            return [DELIVERED] * len(batch.messages)
        return [
            plan.outcome(message.id, failures[message.id]) if message.id in failures else DELIVERED
            for message in batch.messages
        ]

    def _call(self, batch: Batch, plan: Plan) -> dict[int, str]:
        """The errors of the messages that are not delivered, by id."""
        arguments = _arguments(batch, plan)
        try:
            answer = self.redis.call(_request(["EVALSHA", SHA, *arguments], plan))
        except NoScriptError:
            # Known not to have run. EVAL loads it too.
            answer = self.redis.call(_request(["EVAL", SCRIPT, *arguments], plan))
        match answer:
            case [b"revoked"]:
                raise ClaimRevoked(f"claim {batch.token} is revoked: a later claim holds its messages")
            case [b"refused", error]:
                self.redis.drop()
                raise SinkUnavailable(describe(error.decode(errors="replace")), unknown=False)
            case [b"done", *listed]:
                texts = [part.decode(errors="replace") for part in listed]
                return dict(zip(map(int, texts[::2]), texts[1::2], strict=True))
            case _:
                self.redis.drop()
                raise SinkUnavailable("an answer that is not the script's own", unknown=True)


def _arguments(batch: Batch, plan: Plan) -> list[Argument]:
    """The keys and arguments of the script, up to the commands; `redis_fence.lua` says what they are."""
    earlier: dict[UUID, list[int]] = {}
    for message in batch.messages:
        for token in message.prior_tokens:
            earlier.setdefault(token, []).append(message.id)
    keys = [mark_key(token) for token in (batch.token, *earlier, *batch.settled)]
    held = [_list(ids) for ids in earlier.values()]
    lists = [_list(plan.ids), _list(plan.refused), _list(plan.key_numbers)]
    return [len(keys), *keys, MARK_SECONDS, len(earlier), *lists, *held]


def _list(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))


def _request(arguments: list[Argument], plan: Plan) -> bytes:
    count = b"*%d\r\n" % (len(arguments) + plan.arguments)
    return b"".join([count, bulks(arguments), *plan.packed])
