"""Marks and tokens survive their way through Kafka."""

from __future__ import annotations

import time
from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from sinks.kafka.marks import NOT_SENT, Mark
from sinks.kafka.tokens import Sender, identity_of, made_ms

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


def test_token_tells_who_made_it_and_when() -> None:
    sender = Sender()
    before = int(time.time() * 1000)
    tokens = [sender.new_token() for _ in range(1000)]
    assert len(set(tokens)) == 1000
    assert {identity_of(token) for token in tokens} == {sender.identity}
    assert {(token.version, token.variant) for token in tokens} == {(8, "specified in RFC 4122")}
    assert all(before <= (made_ms(token) or 0) <= time.time() * 1000 + 1000 for token in tokens)
    assert identity_of(Sender().new_token()) != sender.identity


def test_token_made_elsewhere_has_no_time() -> None:
    assert made_ms(uuid4()) is None
