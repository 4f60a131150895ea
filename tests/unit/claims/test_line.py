"""Shards that are known to hold more, and who looks for others."""

from __future__ import annotations

from relay.claims.edge import Line


def test_those_that_were_read_least_far_come_first() -> None:
    line = Line()
    line.join([(1, 300), (2, 100), (3, 200)])
    assert line.take(2) == [2, 3]
    assert line.take(2) == [1]
    assert line.take(2) == []


def test_nobody_looks_into_what_is_in_the_line_or_being_claimed_or_settled() -> None:
    line = Line()
    line.join([(1, 300), (2, 100)])
    assert line.take(1) == [2]
    assert sorted(line.known()) == [1, 2]
    line.done([2])
    assert line.known() == [1]
    line.busy([2, 3])
    assert sorted(line.known()) == [1, 2, 3]


def test_who_holds_more_is_in_the_line_again() -> None:
    line = Line()
    line.join([(1, 300), (2, 100)])
    line.done(line.take(1))
    line.join([(2, 400)])
    assert line.take(2) == [1, 2]


def test_one_claim_in_some_looks_for_others() -> None:
    line = Line()
    assert [line.is_time_to_look(3) for _ in range(6)] == [False, False, True] * 2


def test_nothing_is_in_the_line_once_all_was_forgotten() -> None:
    line = Line()
    line.join([(1, 300)])
    line.clear()
    assert line.take(1) == line.known() == []
