"""Kafka sinks for tests, something that uses them as the relay does, and what they left in the topics."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sinks.base import Delivered, Message, SinkConfig, SinkUnavailable
from sinks.kafka.sink import KafkaOptions, KafkaSink
from sinks.template import Template
from sinks.testing import batch
from tests.servers.kafka import Record

BY_HEADER = Template("{header.topic}")


def make(
    client: Mapping[str, Any],
    topic: str | Template = BY_HEADER,
    *,
    ordered: bool = False,
    exactly_once: bool = False,
    timeout: float = 10.0,
    **options: Any,
) -> KafkaSink:
    """A sink that is not opened yet. Further options are its own, or librdkafka's with underscores for dots."""
    own = {name: options.pop(name) for name in KafkaOptions.model_fields.keys() & options.keys()}
    parsed = KafkaOptions(topic=Template(str(topic)), exactly_once=exactly_once, **own)
    merged = {**client, **{name.replace("_", "."): value for name, value in options.items()}}
    return KafkaSink(SinkConfig("orders", parsed, send_timeout=timeout, ordered=ordered, client=merged))


@contextmanager
def opened(client: Mapping[str, Any], *args: Any, **options: Any) -> Iterator[KafkaSink]:
    """An open sink."""
    sink = make(client, *args, **options)
    sink.open()
    try:
        yield sink
    finally:
        sink.close()


def deliver_all(sink: KafkaSink, messages: Sequence[Message], *, size: int = 100, timeout: float = 60.0) -> int:
    """Send until everything is delivered, the first undelivered ones first; return how many sends failed."""
    deadline = time.monotonic() + timeout
    waiting = list(messages)
    failures = 0
    while waiting:
        assert time.monotonic() < deadline, f"{len(waiting)} messages are still not delivered"
        now = waiting[:size]
        try:
            outcomes = sink.send(batch(now, token=sink.new_token()))
        except SinkUnavailable:
            outcomes = []
            sink.close()
        done = {one.id for one, outcome in zip(now, outcomes, strict=False) if isinstance(outcome, Delivered)}
        failures += len(done) < len(now)
        waiting = [one for one in waiting if one.id not in done]
    return failures


def ids(records: Iterable[Record]) -> list[str]:
    """The message ids, in the records' order."""
    return [record.headers["message_id"].decode() for record in records]


def assert_in_order(records: Iterable[Record], messages: Sequence[Message]) -> None:
    """Every message is there, and each key's first copies are in the order of the messages."""
    numbers = {str(one.message_id): one.id for one in messages}
    found: defaultdict[bytes | None, list[int]] = defaultdict(list)
    for record in records:
        number = numbers[record.headers["message_id"].decode()]
        if number not in found[record.key]:
            found[record.key].append(number)
    expected: defaultdict[bytes | None, list[int]] = defaultdict(list)
    for one in messages:
        expected[one.key.encode() if one.key is not None else None].append(one.id)
    assert found == expected
