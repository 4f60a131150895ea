"""How long messages wait for a destination that is unwell."""

from __future__ import annotations

from relay.claims.verdict import FIRST_HOLD_S, LONGEST_HOLD_S, Destinations
from sinks.base import DELIVERED, Hold


def test_many_batches_at_once_do_not_make_the_wait_longer() -> None:
    destinations = Destinations()
    for _ in range(50):
        assert destinations.delays([DELIVERED, Hold("missing", "a")])["a"] <= FIRST_HOLD_S


def test_each_destination_waits_for_itself() -> None:
    destinations = Destinations()
    assert destinations.delays([Hold("missing", "a"), Hold("denied", "b"), Hold("everything")]).keys() == {"a", "b"}
    assert destinations.delays([DELIVERED]) == {}


def test_a_destination_is_news_once() -> None:
    destinations = Destinations()
    destinations.delays([Hold("missing", "a"), Hold("missing", "a"), DELIVERED])
    assert destinations.news() == [("a", "missing")]
    destinations.delays([Hold("missing", "a"), Hold("denied", "b"), Hold("everything")])
    assert destinations.news() == [("b", "denied")]
    destinations.delays([DELIVERED])
    assert destinations.news() == []


def test_the_wait_grows_once_it_is_over_up_to_a_limit() -> None:
    destinations = Destinations()
    waits = []
    for _ in range(12):
        waits.append(destinations.delays([Hold("missing", "a")])["a"])
        destinations._unwell["a"].try_at = 0.0
    assert waits[0] <= FIRST_HOLD_S < waits[-1] <= LONGEST_HOLD_S
