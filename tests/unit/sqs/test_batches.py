"""Which entries share a call, and which wait."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.sqs.batches import Batches
from sinks.sqs.entries import Entry

LIMIT = 1000


def entry(position: int, lane: str | int | None = None, size: int = 10, queue: str = "q") -> Entry:
    return Entry(position, queue, position if lane is None else lane, size, {})


def batches(entries: Sequence[Entry], *, ordered: bool = False) -> Batches:
    return Batches(entries, lambda queue: LIMIT, ordered=ordered)


def positions(call: Sequence[Entry]) -> list[int]:
    return [each.position for each in call]


def test_ten_a_call() -> None:
    made = batches([entry(position) for position in range(25)])
    assert [positions(made.next_call()) for _ in range(4)] == [
        list(range(10)),
        list(range(10, 20)),
        list(range(20, 25)),
        [],
    ]


def test_bytes_of_a_call_together() -> None:
    made = batches([entry(0, size=600), entry(1, size=600), entry(2, size=400), entry(3, size=1)])
    assert [positions(made.next_call()) for _ in range(3)] == [[0], [1, 2], [3]]


def test_queues_take_turns_and_never_share_a_call() -> None:
    made = batches([entry(position, queue="ab"[position % 2]) for position in range(30)])
    queues = []
    while call := made.next_call():
        assert len({each.queue for each in call}) == 1
        queues.append(call[0].queue)
    assert queues == ["a", "b", "a", "b"]


def test_group_goes_together_in_order_and_never_in_two_calls() -> None:
    made = batches([entry(position, lane="g") for position in range(15)])
    first = made.next_call()
    assert positions(first) == list(range(10))
    assert made.next_call() == []
    assert made.ended(first) == []
    assert positions(made.next_call()) == list(range(10, 15))


def test_group_that_does_not_fit_whole_goes_on_in_order() -> None:
    made = batches([entry(0, "g", 600), entry(1, "g", 600), entry(2, "h", 300)])
    first = made.next_call()
    assert positions(first) == [0, 2]
    made.ended(first)
    assert positions(made.next_call()) == [1]


def test_ordered_lane_has_one_entry_in_a_call() -> None:
    made = batches([entry(position, lane="ab"[position % 2]) for position in range(4)], ordered=True)
    first = made.next_call()
    assert positions(first) == [0, 1]
    assert made.next_call() == []
    assert positions(made.ended(first, stuck=["a"])) == [2]
    assert positions(made.next_call()) == [3]
    assert list(made.rest()) == []


def test_ordered_lane_over_two_queues_keeps_its_order() -> None:
    made = batches([entry(0, "k", queue="a"), entry(1, "k", queue="b")], ordered=True)
    first = made.next_call()
    assert positions(first) == [0]
    assert made.next_call() == []
    made.ended(first)
    assert positions(made.next_call()) == [1]


def test_after_a_refused_call_each_entry_goes_alone_and_others_together() -> None:
    made = batches([entry(position) for position in range(14)])
    first = made.next_call()
    made.again_alone(first)
    calls = []
    while call := made.next_call():
        calls.append(positions(call))
    assert sorted(calls) == [*[[position] for position in range(10)], [10, 11, 12, 13]]


def test_refused_group_keeps_its_order_alone() -> None:
    made = batches([entry(position, lane="g") for position in range(3)])
    made.again_alone(made.next_call())
    for position in range(3):
        call = made.next_call()
        assert positions(call) == [position]
        assert made.next_call() == []
        made.ended(call)


def test_what_never_left_is_the_rest() -> None:
    made = batches([entry(position, lane="g") for position in range(12)])
    made.next_call()
    assert positions(list(made.rest())) == [11, 10]


@pytest.mark.parametrize("ordered", [False, True])
@given(data=st.data())
def test_any_history_of_answers_keeps_the_rules(ordered: bool, data: st.DataObject) -> None:
    lanes = st.sampled_from(["a", "b", "c"]) | st.none()
    shape = data.draw(st.lists(st.tuples(lanes, st.integers(1, LIMIT), st.sampled_from("qr")), max_size=60))
    chance = random.Random(data.draw(st.integers()))
    entries = [
        # Without a promise of order a lane is a group of one queue.
        entry(position, f"{lane}{'' if ordered else queue}" if lane else None, size, queue)
        for position, (lane, size, queue) in enumerate(shape)
    ]
    made = batches(entries, ordered=ordered)
    flying: list[list[Entry]] = []
    gone: defaultdict[str | int, list[int]] = defaultdict(list)
    left: list[int] = []
    stuck: set[str | int] = set()
    while True:
        call = made.next_call() if len(flying) < 3 else []
        if call:
            assert len(call) <= 10
            assert len({each.queue for each in call}) == 1
            assert sum(each.size for each in call) <= LIMIT
            busy = {each.lane for other in flying for each in other}
            assert not busy & {each.lane for each in call}
            assert not ordered or len({each.lane for each in call}) == len(call)
            flying.append(call)
            continue
        if not flying:
            break
        ended = flying.pop(chance.randrange(len(flying)))
        if chance.random() < 0.2 and len(ended) > 1:
            made.again_alone(ended)
            continue
        failed = [each.lane for each in ended if ordered and chance.random() < 0.2]
        stuck.update(failed)
        for each in ended:
            gone[each.lane].append(each.position)
        left += positions(made.ended(ended, failed))
    assert all(positions_of_lane == sorted(positions_of_lane) for positions_of_lane in gone.values())
    assert sorted([*left, *[each for lane in gone.values() for each in lane]]) == list(range(len(entries)))
    assert all(entries[position].lane in stuck for position in left)
