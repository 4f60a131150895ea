"""One call of the fenced script, `fence.lua`: what it is asked, and what its answer means."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from redis.exceptions import NoScriptError

from sinks.base import Batch, ClaimRevoked, SinkConfig, SinkUnavailable
from sinks.redis.connection import Argument, bulks, request
from sinks.redis.errors import describe
from sinks.redis.plan import Part

SCRIPT: Final = Path(__file__).with_name("fence.lua").read_bytes()
SHA: Final = hashlib.sha1(SCRIPT, usedforsecurity=False).hexdigest()

MARK_SECONDS: Final = 7 * 24 * 3600
"""How long a mark lives that nobody deletes: longer than a stalled sender could stay asleep."""

Call = Callable[..., list[Any]]
"""Sends requests and gives their answers, as `RedisConnection.call` does."""


def mark_key(token: UUID, tag: str | None = None) -> str:
    """The key of a claim's mark; in a cluster, of the mark of its part in the slot of a hash tag."""
    return f"outbox-relay:mark:{token.hex}" if tag is None else f"outbox-relay:mark:{{{tag}}}:{token.hex}"


@dataclass(frozen=True, slots=True)
class Replicas:
    """How many of them must have a write before it counts, and for how many milliseconds to wait for them."""

    count: int
    timeout_ms: int


def wait_ms(config: SinkConfig) -> int:
    """For how long replicas are waited for: half of the time that a send has."""
    return int(config.send_timeout * 500)


def ask(
    call: Call, batch: Batch, part: Part, *, settled: Sequence[UUID], replicas: Replicas | None, tag: str | None = None
) -> dict[int, str]:
    """Push a part of a batch; the errors of the messages that are not delivered, by id.

    Args:
        settled: earlier tokens whose marks may go.
        replicas: None: those that the primary has need not confirm.
        tag: hash tag of the slot, in a cluster; None: the part is the whole batch.

    Raises:
        SinkUnavailable: nothing of it is known to be delivered.
        ClaimRevoked: a later claim holds these messages.
    """
    arguments = _arguments(batch, part, settled, tag)
    wait = [request("WAIT", replicas.count, replicas.timeout_ms)] if replicas else []
    try:
        answer, *confirmed = call(_packed(["EVALSHA", SHA, *arguments], part), *wait)
    except NoScriptError:
        # Known not to have run. EVAL loads it too.
        answer, *confirmed = call(_packed(["EVAL", SCRIPT, *arguments], part), *wait)
    match answer:
        case [b"revoked"]:
            raise ClaimRevoked(f"claim {batch.token} is revoked: a later claim holds its messages")
        case [b"refused", error]:
            raise SinkUnavailable(describe(error.decode(errors="replace")), unknown=False)
        case [b"done", *listed]:
            if replicas:
                _check(replicas, confirmed[0])
            texts = [part.decode(errors="replace") for part in listed]
            return dict(zip(map(int, texts[::2]), texts[1::2], strict=True))
        case _:
            raise SinkUnavailable("an answer that is not the script's own", unknown=True)


def _check(replicas: Replicas, confirmed: Any) -> None:
    if isinstance(confirmed, Exception):
        raise SinkUnavailable(describe(confirmed), unknown=True)
    if confirmed < replicas.count:
        # It is in the primary. Asked again, the script pushes nothing, and the replicas get another chance.
        raise SinkUnavailable(f"{confirmed} of {replicas.count} replicas confirmed in time", unknown=True)


def _arguments(batch: Batch, part: Part, settled: Sequence[UUID], tag: str | None) -> list[Argument]:
    """The keys and arguments of the script, up to the commands; `fence.lua` says what they are."""
    members = {*part.ids, *part.refused}
    earlier: dict[UUID, list[int]] = {}
    for message in batch.messages:
        if message.prior_tokens and message.id in members:
            for token in message.prior_tokens:
                earlier.setdefault(token, []).append(message.id)
    keys = [mark_key(token, tag) for token in (batch.token, *earlier, *settled)]
    if tag is not None:
        keys += part.keys
    held = [_list(ids) for ids in earlier.values()]
    lists = [_list(part.ids), _list(part.refused), _list(part.key_numbers)]
    numbers = [MARK_SECONDS, len(earlier), len(settled)]
    return [len(keys), *keys, *numbers, *lists, "" if tag is None else "part", *held]


def _list(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))


def _packed(arguments: list[Argument], part: Part) -> bytes:
    count = b"*%d\r\n" % (len(arguments) + part.arguments)
    return b"".join([count, bulks(arguments), *part.packed])
