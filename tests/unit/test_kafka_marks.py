"""Marks survive their way through Kafka, and fit into it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.kafka_marks import LONGEST, REVOKED, Mark, marks_from_text, marks_to_text

IDS = st.frozensets(st.integers(1, 2**62), max_size=30)
MARKS = st.one_of(st.just(REVOKED), st.builds(Mark, IDS, st.booleans()))


@given(st.dictionaries(st.text("0123456789abcdef", min_size=16, max_size=16), MARKS, max_size=4))
def test_marks_come_back_as_they_were(marks: dict[str, Mark]) -> None:
    found = marks_from_text(marks_to_text(marks))
    assert found == marks
    assert list(found) == list(marks)


@given(IDS, IDS)
def test_mark_knows_what_was_sent(sent: frozenset[int], others: frozenset[int]) -> None:
    mark = Mark.of(sent, others - sent)
    assert all(mark.sent(one) for one in sent)
    assert not any(mark.sent(one) for one in others - sent)
    assert not any(REVOKED.sent(one) for one in sent)


def test_the_oldest_give_way() -> None:
    marks = {f"{number:016x}": Mark.of((), range(100)) for number in range(50)}
    text = marks_to_text(marks)
    assert len(text) <= LONGEST
    assert list(marks_from_text(text)) == list(marks)[-len(marks_from_text(text)) :]


def test_a_mark_that_has_no_room_is_an_error() -> None:
    with pytest.raises(ValueError, match="too long"):
        marks_to_text({"0" * 16: Mark(frozenset(range(0, 10**9, 10**6)))})
