"""Keeps what it is sent in this process: for tests, for benchmarks, and as the shortest example of a sink.

What was sent stays, by sink name, until `forget` is called. A test can decide the outcomes by a hook.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from sinks.base import DELIVERED, Batch, Delivered, Message, Outcome, Retry, Sink, SinkOptions

Hook = Callable[[Message], Outcome | None]
"""Gives the outcome of a message; None: delivered. What it raises, `send` raises, and nothing was delivered."""

_delivered: defaultdict[str, list[Message]] = defaultdict(list)
_hooks: dict[str, Hook] = {}


def delivered(sink: str) -> list[Message]:
    """Every message that sinks of this name have taken in this process, oldest first; every copy counts."""
    return list(_delivered[sink])


def intercept(sink: str, hook: Hook | None) -> None:
    """Let `hook` decide the outcomes of all sinks of this name from now on; None ends it."""
    if hook is None:
        _hooks.pop(sink, None)
    else:
        _hooks[sink] = hook


def forget(sink: str) -> None:
    """Drop what sinks of this name have taken, and their hook."""
    _delivered.pop(sink, None)
    _hooks.pop(sink, None)


class MemoryOptions(SinkOptions):
    """Configuration keys of `type = "memory"`."""

    keep: bool = True
    """False: messages are dropped as soon as they are taken, so that a benchmark's memory stays flat."""


class MemorySink(Sink):
    """Takes everything, unless a hook says otherwise."""

    Options = MemoryOptions

    def send(self, batch: Batch) -> Sequence[Outcome]:
        hook = _hooks.get(self.config.name)
        outcomes = [DELIVERED] * len(batch.messages) if hook is None else self._decide(hook, batch.messages)
        if self.config.options.keep:
            taken = [m for m, outcome in zip(batch.messages, outcomes, strict=True) if isinstance(outcome, Delivered)]
            _delivered[self.config.name].extend(taken)
        return outcomes

    def _decide(self, hook: Hook, messages: Sequence[Message]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        stuck: set[str] = set()
        for message in messages:
            outcome: Outcome
            if message.key in stuck:
                outcome = Retry("not sent: an earlier message of its key was not delivered")
            else:
                outcome = hook(message) or DELIVERED
                if self.config.ordered and message.key is not None and not isinstance(outcome, Delivered):
                    stuck.add(message.key)
            outcomes.append(outcome)
        return outcomes
