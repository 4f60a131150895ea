"""SQS sinks for tests, and what they say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from sinks.base import Message, Outcome, SinkConfig, SinkUnavailable
from sinks.sqs.crt import CrtSender
from sinks.sqs.sink import SqsOptions, SqsSink
from sinks.testing import batch


@contextmanager
def opened(
    client: Mapping[str, Any], *, ordered: bool = False, send_timeout: float = 5.0, **options: Any
) -> Iterator[SqsSink]:
    """An open sink with these options; queue `orders` unless told otherwise."""
    checked = SqsOptions.model_validate({"queue": "orders", **options})
    sink = SqsSink(SinkConfig("a-sink", checked, send_timeout=send_timeout, ordered=ordered, client=client))
    sink.open()
    try:
        yield sink
    finally:
        sink.close()


def send(sink: SqsSink, messages: Sequence[Message], **changes: Any) -> list[Outcome]:
    return list(sink.send(batch(messages, **changes)))


def outcomes_or_nothing(sink: SqsSink, messages: Sequence[Message]) -> Sequence[Outcome | None]:
    """What `send` says; nothing of any message where it raises."""
    try:
        return send(sink, messages)
    except SinkUnavailable:
        return [None] * len(messages)


def unavailable(sink: SqsSink, messages: Sequence[Message]) -> SinkUnavailable:
    """The error that sending these raises."""
    with pytest.raises(SinkUnavailable) as caught:
        sink.send(batch(messages))
    return caught.value


def only_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send by boto3 itself, as where a proxy is configured."""
    monkeypatch.setattr(CrtSender, "fits", staticmethod(lambda client: False))


def once(answer: Any) -> Callable[[Any], Any]:
    """A hook of the stub that gives this answer to the first call only."""
    answers = [answer]
    return lambda call: answers.pop() if answers else None
