"""Where claims of single rows start, with several workers who share the hint."""

from __future__ import annotations

from relay.claims.scan import Scan


def hinted() -> Scan:
    """A scan that has looked everywhere and found ids up to 100; the next looks use the hint."""
    scan = Scan()
    scan.found(scan.start(), 100)
    scan._everywhere_at = float("inf")
    return scan


def test_a_worker_starts_behind_what_another_one_claimed() -> None:
    scan = hinted()
    one, other = scan.start(), scan.start()
    scan.found(one, 200)
    scan.found(other, 300)
    assert scan.start().after == 300
    scan.found(scan.start(), 250)  # late: it passed by what is behind the hint already
    assert scan.start().after == 300


def test_what_came_back_meanwhile_is_not_passed_by() -> None:
    scan = hinted()
    look = scan.start()
    scan.go_back(50)
    scan.found(look, 200)
    assert scan.start().after == 49


def test_where_nothing_is_left_the_hint_is_the_last_id_found() -> None:
    scan = hinted()
    scan.found(scan.start(), 200)
    scan.go_back(50)
    scan.found(scan.start(), None)
    assert scan.start().after == 200


def test_one_worker_at_a_time_looks_everywhere() -> None:
    scan = Scan()
    first, second = scan.start(), scan.start()
    assert first.everywhere
    assert not second.everywhere
    scan.failed(first)
    assert scan.start().everywhere


def test_a_look_everywhere_that_found_old_ids_is_followed() -> None:
    scan = hinted()
    scan._everywhere_at = 0.0
    everywhere, hint = scan.start(), scan.start()
    assert (everywhere.after, hint.after) == (0, 100)
    scan.found(everywhere, 20)
    scan.found(hint, 200)
    assert scan._after == 20
