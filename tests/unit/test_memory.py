"""The sink that keeps messages in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sinks import memory
from sinks.base import DELIVERED, Message, Outcome, Retry, SinkConfig, SinkUnavailable
from sinks.memory import MemoryOptions, MemorySink
from sinks.testing import batch, message


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    yield
    for name in ("a", "b"):
        memory.forget(name)


def sink(name: str, *, keep: bool = True) -> MemorySink:
    return MemorySink(SinkConfig(name, MemoryOptions(keep=keep)))


def test_messages_are_kept_by_sink_name() -> None:
    one, two = message(1), message(2)
    sink("a").send(batch([one]))
    sink("b").send(batch([two]))
    sink("a").send(batch([two]))
    assert memory.delivered("a") == [one, two]
    memory.forget("a")
    assert (memory.delivered("a"), memory.delivered("b")) == ([], [two])


def test_nothing_is_kept_where_that_is_not_wanted() -> None:
    assert sink("a", keep=False).send(batch([message(1)])) == [DELIVERED]
    assert memory.delivered("a") == []


def test_hook_decides_outcomes_and_outages() -> None:
    def odd_later(message: Message) -> Outcome | None:
        if message.id == 99:
            raise SinkUnavailable("as asked", unknown=True)
        return Retry("odd") if message.id % 2 else None

    memory.intercept("a", odd_later)
    assert sink("a").send(batch([message(1), message(2)])) == [Retry("odd"), DELIVERED]
    with pytest.raises(SinkUnavailable):
        sink("a").send(batch([message(4), message(99)]))
    assert [one.id for one in memory.delivered("a")] == [2]
    memory.intercept("a", None)
    assert sink("a").send(batch([message(1)])) == [DELIVERED]
