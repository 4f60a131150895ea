"""Shards that are known to hold more, and who looks for others."""

from __future__ import annotations

from relay.line import Line


def test_those_that_were_read_least_far_come_first() -> None:
    line = Line()
    line.join([(1, 300), (2, 100), (3, 200)])
    assert line.take(2, 30) == [2, 3]
    assert line.take(2, 30) == [1]
    assert line.take(2, 30) == []


def test_nobody_looks_into_what_is_in_the_line_or_was_taken_from_it() -> None:
    line = Line()
    line.join([(1, 300), (2, 100)])
    assert line.take(1, 30) == [2]
    assert sorted(line.known()) == [1, 2]
    line.give_back([2])
    assert line.known() == [1]


def test_who_holds_more_is_in_the_line_again() -> None:
    line = Line()
    line.join([(1, 300), (2, 100)])
    line.give_back(line.take(1, 30), [(2, 400)])
    assert line.take(2, 30) == [1, 2]


def test_what_is_taken_and_never_given_back_is_looked_for_again() -> None:
    line = Line()
    line.join([(1, 300)])
    assert line.take(1, 0.0) == [1]
    assert line.known() == []


def test_one_claim_in_some_looks_for_others() -> None:
    line = Line()
    assert [line.is_time_to_look(3) for _ in range(6)] == [False, False, True] * 2


def test_nothing_is_in_the_line_once_all_was_forgotten() -> None:
    line = Line()
    line.join([(1, 300)])
    line.clear()
    assert line.take(1, 30) == line.known() == []
