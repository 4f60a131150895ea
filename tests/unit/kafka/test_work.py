"""What goes out next: the rules that keep order, over any mixture of messages."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sinks.base import DELIVERED, Hold, Message, Reject, Retry
from sinks.kafka.client import Record
from sinks.kafka.work import Limits, Work
from sinks.testing import message

LIMITS = Limits(bytes=1000, messages=5)
MIXTURES = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from(["one", "two"]), st.integers(1, 1500)), max_size=30
)


def work(mixture: list[tuple[str | None, str, int]], *, ordered: bool = True) -> Work:
    messages: list[Message] = []
    records: list[Record | None] = []
    for number, (key, topic, size) in enumerate(mixture):
        messages.append(message(number, key=key))
        records.append(Record(topic, b"", key.encode() if key else None, 0, [], size))
    return Work(messages, records, [None] * len(mixture), ordered=ordered)


@given(MIXTURES, st.data())
def test_nothing_in_a_wave_can_pass_an_earlier_message_of_its_key(
    mixture: list[tuple[str | None, str, int]], data: st.DataObject
) -> None:
    batch = work(mixture)
    gone: set[int] = set()
    while (wave := batch.wave(LIMITS)).positions:
        assert wave.positions == sorted(wave.positions)
        fits = sum(batch.record(at).size for at in wave.positions) <= LIMITS.bytes
        assert wave.alone or len(wave.positions) == 1 or (fits and len(wave.positions) <= LIMITS.messages)
        for at in wave.positions:
            key, topic, _ = mixture[at]
            earlier = [other for other in range(at) if mixture[other][0] == key is not None]
            assert {mixture[other][1] for other in set(earlier) & set(wave.positions)} <= {topic}
            assert set(earlier) <= gone | set(wave.positions)
            assert not wave.alone or not set(earlier) & set(wave.positions)
        refused = not wave.alone and data.draw(st.booleans())
        for at in wave.positions:
            if refused:
                batch.suspect(at)
            elif data.draw(st.integers(0, 9)):
                batch.outcomes[at] = DELIVERED
                gone.add(at)
            else:
                batch.outcomes[at] = Reject("unfit")
    assert None not in batch.outcomes


def test_those_behind_wait_for_the_same_destination() -> None:
    batch = work([("a", "one", 1), ("a", "two", 1), ("b", "one", 1), ("b", "one", 1), (None, "one", 1)])
    batch.outcomes[0] = Hold("missing", "one")
    batch.outcomes[2] = Reject("unfit")
    assert batch.wave(LIMITS).positions == [4]
    behind = "not sent: an earlier message of its key was not delivered"
    assert batch.outcomes[1] == Hold(behind, "one")
    assert batch.outcomes[3] == Retry(behind)


def test_without_order_all_goes_out_at_once() -> None:
    batch = work([("a", "one", 5000)] * 20, ordered=False)
    assert batch.wave(LIMITS).positions == list(range(20))
    batch.suspect(3)
    assert batch.wave(LIMITS) == ([3], True)
