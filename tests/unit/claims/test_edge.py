"""What a delivery may say about where reading starts: nothing that another worker has learnt since."""

from __future__ import annotations

from relay.claims.edge import Edge, Mark


def edge(after: tuple[int, ...], quiet: int = 100) -> Edge:
    edge = Edge("orders", len(after))
    edge.mark = Mark(after, quiet, 0)
    return edge


def test_delivered_shards_move_on_up_to_the_id_that_nobody_writes_below() -> None:
    moved = edge((10, 10), quiet=40)
    moved.passed(moved.mark, {0: 30, 1: 50})
    assert moved.mark.after == (30, 40)


def test_what_was_read_before_all_was_forgotten_moves_nothing() -> None:
    forgotten = edge((10, 10))
    before = forgotten.mark
    forgotten.forget()
    forgotten.mark = forgotten.mark._replace(quiet=100)
    forgotten.passed(before, {0: 50})
    assert forgotten.mark.after == (0, 0)


def test_shard_that_was_moved_back_meanwhile_stays_there() -> None:
    """Something appeared below, which the reader did not see."""
    moved_back = edge((10, 10))
    before = moved_back.mark
    moved_back.mark = before._replace(after=(3, 10))
    moved_back.passed(before, {0: 50, 1: 50})
    assert moved_back.mark.after == (3, 50)


def test_edges_never_move_back_by_a_delivery() -> None:
    late = edge((10, 60))
    late.passed(late.mark, {0: 20, 1: 20})
    assert late.mark.after == (20, 60)
