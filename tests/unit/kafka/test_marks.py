"""Marks and tokens survive their way through Kafka."""

from __future__ import annotations

from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.kafka.marks import ANYWHERE, NOT_SENT, Mark, Place, Sender, identity_of, place_of, tag_of

IDS = st.frozensets(st.integers(1, 2**62), max_size=30)


@given(IDS, st.booleans(), st.booleans())
def test_marks_come_back_as_they_were(ids: frozenset[int], only: bool, closed: bool) -> None:
    mark = Mark(ids, only)
    if closed and not mark.complete:
        mark = mark.close()
    assert Mark.from_text(mark.to_text()) == mark


@given(IDS, IDS)
def test_mark_knows_what_was_sent(sent: frozenset[int], others: frozenset[int]) -> None:
    mark = Mark.of(sent, others - sent)
    assert all(mark.sent(one) and mark.close().sent(one) for one in sent)
    assert not any(mark.sent(one) or NOT_SENT.close().sent(one) for one in others - sent)
    assert mark.complete == (not others - sent)


@pytest.mark.parametrize("text", ["", "A", "x1", "a1", "o1..2", "o-1", "oxyz", "b1.", "{}", "o" + "f" * 20 + "!"])
def test_what_is_no_mark_is_told_apart(text: str) -> None:
    with pytest.raises(ValueError, match="not the text of a mark"):
        Mark.from_text(text)


@given(st.integers(0, 63), st.integers(0, 2**41), st.text())
def test_token_tells_who_made_it_and_where_its_marks_are(partition: int, offset: int, topic_id: str) -> None:
    sender = Sender()
    sender.move(Place(partition, offset, tag_of(topic_id)))
    tokens = [sender.new_token() for _ in range(100)]
    assert len(set(tokens)) == 100
    assert {identity_of(token) for token in tokens} == {sender.identity}
    assert {(token.version, token.variant) for token in tokens} == {(8, "specified in RFC 4122")}
    place = place_of(tokens[-1])
    assert (place.partition, place.tag) == (partition, tag_of(topic_id))
    assert place.offset <= offset
    assert offset - place.offset < 4096 or offset >= 2**40
    assert identity_of(Sender().new_token()) != sender.identity


def test_no_two_tokens_are_alike_however_many_there_are_and_wherever_the_marks_go() -> None:
    """The part that counts them has 16 bits: an idle relay uses it up in less than a day.

    In the same way two tokens could agree once a sender comes back to a partition, or a topic is made again.
    """
    sender = Sender()
    tokens = []
    for place in (Place(1, 0, 7), Place(1, 5000, 7), Place(2, 0, 7), Place(1, 0, 7), Place(1, 0, 8), Place(1, 0, 7)):
        sender.move(place)
        tokens += [sender.new_token() for _ in range(70_000)]
    assert len(set(tokens)) == len(tokens)


def test_token_made_elsewhere_tells_no_place() -> None:
    assert place_of(uuid4()) == ANYWHERE
    assert place_of(Sender().new_token()) == ANYWHERE
