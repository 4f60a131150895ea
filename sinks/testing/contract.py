"""The contract suite: what every sink must do, as pytest tests. It needs pytest, which this package does not bring.

Subclass `SinkContract` in a test module of yours, or `FencedSinkContract` where the sink says
``fenced = True``::

    class TestMySink(SinkContract):
        def make(self, *, ordered=False): ...
        def received(self): ...
        def unsendable(self, message): ...
        def outage(self): ...

Nothing is skipped: where sinks may differ, the class declares what its sink does and the suite checks just that.
``pytest.register_assert_rewrite("sinks.testing")`` in a `conftest.py` makes failures show
values.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import Any, ClassVar

import pytest
from pydantic import ValidationError

from sinks.base import DELIVERED, Delivered, Hold, Message, Outcome, Reject, Sink, SinkUnavailable
from sinks.testing.messages import PAYLOADS, Received, batch, message


class SinkContract(ABC):
    """Every sink."""

    fenced: ClassVar[bool] = False
    takes_body: ClassVar[bool] = True
    """Whether it delivers bytes that are not JSON; False: it must reject them."""

    payloads: ClassVar[Sequence[bytes]] = PAYLOADS
    """What it must deliver byte for byte; leave out only what its consumers cannot read."""
    one_step: ClassVar[int | None] = None
    """Most messages that it sends before it asks again whether its claim is lost; None: it sends a batch in one step,
    and does not ask."""
    works_long: ClassVar[bool] = False
    """Whether it works on its messages for so long that it asks before each one whether the relay is stopping."""

    @abstractmethod
    def make(self, *, ordered: bool = False) -> Sink:
        """A sink that is not opened yet. All that a test makes send to the same place, empty at its beginning."""

    @abstractmethod
    def received(self) -> Sequence[Received]:
        """Every copy that the broker holds now; oldest first where `make(ordered=True)` sent them."""

    @abstractmethod
    def unsendable(self, message: Message) -> Message:
        """The message, changed so that the sink must reject it."""

    @abstractmethod
    def outage(self) -> AbstractContextManager[object]:
        """While it is entered, the broker cannot be reached."""

    def identity(self, message: Message) -> str:
        """The message's id as the broker holds it."""
        return str(message.message_id)

    @contextmanager
    def opened(self, *, ordered: bool = False) -> Iterator[Sink]:
        """A sink, opened and closed."""
        sink = self.make(ordered=ordered)
        sink.open()
        try:
            yield sink
        finally:
            sink.close()

    def expected(self, messages: Sequence[Message]) -> list[Received]:
        return [Received(self.identity(one), one.kind, one.data) for one in messages]

    def arrived(self, messages: Sequence[Message]) -> Sequence[Received]:
        """What the broker holds, once it holds as much as these messages."""
        deadline = time.monotonic() + 10
        while len(received := self.received()) < len(messages) and time.monotonic() < deadline:
            time.sleep(0.05)
        return received

    def assert_arrived(self, messages: Sequence[Message]) -> None:
        """Exactly these, each once, in any order."""
        assert sorted(self.arrived(messages)) == sorted(self.expected(messages))

    def test_each_message_arrives_once(self) -> None:
        messages = [message(number) for number in range(1, 1201)]
        with self.opened() as sink:
            assert list(sink.send(batch(messages))) == [DELIVERED] * 1200
        self.assert_arrived(messages)

    def test_payload_arrives_byte_for_byte(self) -> None:
        messages = [message(number, payload=payload) for number, payload in enumerate(self.payloads, 1)]
        with self.opened() as sink:
            assert list(sink.send(batch(messages))) == [DELIVERED] * len(messages)
        self.assert_arrived(messages)

    def test_body_arrives_byte_for_byte_or_is_rejected(self) -> None:
        messages = [message(1), message(2, payload=None, body=b"\xff\xfe\x00"), message(3)]
        with self.opened() as sink:
            outcomes = sink.send(batch(messages))
        second = Delivered if self.takes_body else Reject
        assert [type(outcome) for outcome in outcomes] == [Delivered, second, Delivered]
        self.assert_arrived(messages if self.takes_body else messages[::2])

    def test_nothing_to_send(self) -> None:
        with self.opened() as sink:
            assert list(sink.send(batch([]))) == []
        assert list(self.received()) == []

    def test_rejected_message_stops_no_other(self) -> None:
        messages = [message(1), self.unsendable(message(2)), message(3)]
        with self.opened() as sink:
            outcomes = sink.send(batch(messages))
        assert [type(outcome) for outcome in outcomes] == [Delivered, Reject, Delivered]
        self.assert_arrived(messages[::2])

    def test_reasons_and_logs_hold_no_payload(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("DEBUG")
        rejected = self.unsendable(message(1, payload=b'["my-secret"]'))
        with self.opened() as sink:
            (outcome,) = sink.send(batch([rejected]))
            assert isinstance(outcome, Reject)
            assert outcome.reason
            with self.outage():
                said = repr(self.outcomes_or_error(sink, [message(2, payload=b'["my-secret"]')]))
        assert "my-secret" not in outcome.reason + said + caplog.text

    def test_outage_is_no_message_s_fault_and_ends_in_time(self) -> None:
        messages = [message(1), message(2)]
        with self.opened() as sink:
            with self.outage():
                began = time.monotonic()
                outcomes = self.outcomes_or_error(sink, messages)
                assert time.monotonic() - began < 2 * sink.config.send_timeout
                assert isinstance(outcomes, SinkUnavailable) or {type(one) for one in outcomes} == {Hold}
            assert list(sink.send(batch(messages))) == [DELIVERED] * 2
        self.assert_arrived(messages)

    def test_open_and_close_can_be_repeated(self) -> None:
        sink = self.make()
        sink.close()
        for number in (1, 2):
            sink.open()
            assert list(sink.send(batch([message(number)]))) == [DELIVERED]
            sink.close()
            sink.close()

    def test_unknown_option_is_refused(self) -> None:
        with pytest.raises(ValidationError, match="no_such_option"):
            self.make().Options.model_validate({"no_such_option": 1})

    def test_all_copies_have_the_same_id(self) -> None:
        copy = message(1)
        with self.opened() as sink:
            for _ in range(2):
                assert list(sink.send(batch([copy]))) == [DELIVERED]
        assert set(self.arrived([copy])) == set(self.expected([copy]))

    def test_senders_do_not_disturb_each_other(self) -> None:
        parts = [[message(100 * part + number) for number in range(50)] for part in range(1, 5)]

        def send(part: list[Message]) -> list[Outcome]:
            with self.opened() as sink:
                return [outcome for one in part for outcome in sink.send(batch([one]))]

        with ThreadPoolExecutor(len(parts)) as pool:
            assert list(pool.map(send, parts)) == [[DELIVERED] * 50] * 4
        self.assert_arrived([one for part in parts for one in part])

    def test_ordered_messages_of_a_key_do_not_overtake_each_other(self) -> None:
        messages = [message(number, key=f"key-{number % 3}") for number in range(1, 31)]
        messages[9] = self.unsendable(messages[9])
        with self.opened(ordered=True) as sink:
            outcomes = sink.send(batch(messages))
        assert isinstance(outcomes[9], Reject)
        delivered = [one for one in messages if one.key != messages[9].key or one.id < 10]
        assert [one for one, outcome in zip(messages, outcomes, strict=True) if outcome == DELIVERED] == delivered
        received = self.arrived(delivered)
        for key in {one.key for one in delivered}:
            of_key = self.expected([one for one in delivered if one.key == key])
            assert [one for one in received if one in of_key] == of_key
        assert len(received) == len(delivered)

    def test_lost_claim_still_gets_an_answer_and_sends_nothing(self) -> None:
        messages = [message(1), message(2)]
        with self.opened() as sink:
            outcomes = self.outcomes_or_error(sink, messages, lost=lambda: True)
        assert isinstance(outcomes, Exception) or len(outcomes) == len(messages)
        if self.one_step is not None:
            assert list(self.received()) == []

    def test_claim_lost_after_the_first_step_sends_nothing_more(self) -> None:
        messages = [message(number) for number in range(1, 3 * (self.one_step or 1) + 1)]
        asked = count()
        with self.opened() as sink:
            outcomes = self.outcomes_or_error(sink, messages, lost=lambda: next(asked) > 0)
        assert isinstance(outcomes, Exception) or len(outcomes) == len(messages)
        assert len(self.received()) <= (self.one_step or len(messages))

    def test_stopping_leaves_no_message_half_done(self) -> None:
        """What it says is delivered has arrived, and nothing else."""
        messages = [message(number) for number in range(1, 6)]
        with self.opened() as sink:
            outcomes = self.outcomes_or_error(sink, messages, stopping=lambda: True)
        assert not isinstance(outcomes, Exception)
        assert {type(outcome) for outcome in outcomes} == {Hold if self.works_long else Delivered}
        self.assert_arrived([] if self.works_long else messages)

    def test_suite_fits_the_sink(self) -> None:
        assert self.make().fenced == self.fenced

    def outcomes_or_error(
        self, sink: Sink, messages: Sequence[Message], **changes: Any
    ) -> Sequence[Outcome] | SinkUnavailable:
        """What `send` returned or raised; any other exception fails the test."""
        try:
            return sink.send(batch(messages, **changes))
        except SinkUnavailable as error:
            return error
