"""Sets of ids as the database is told them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relay.claims.places import WIDEST, bits_of


@given(st.integers(-(2**62), 2**62), st.sets(st.integers(0, 9999), min_size=1))
def test_a_bit_is_set_for_each_id_and_no_other(start: int, offsets: set[int]) -> None:
    ids = [start + offset for offset in offsets]
    bits = bits_of(ids)
    assert bits is not None
    assert {min(ids) + at for at in range(8 * len(bits)) if bits[at // 8] >> (at % 8) & 1} == set(ids)


def test_ids_that_lie_too_far_apart_are_not_told_so() -> None:
    assert bits_of([5, 5 + WIDEST]) is None
    bits = bits_of([5 + WIDEST - 1, 5])
    assert bits is not None
    assert len(bits) == WIDEST // 8
