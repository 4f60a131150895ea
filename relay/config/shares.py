"""Routes whose shares leave buckets out: `sql/admin/findings/share_gaps.sql` finds the same in the database."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby

from relay.config.models import Route

BUCKETS = 100


def share_gaps(routes: Sequence[Route]) -> list[str]:
    """A line for each kind some of whose buckets no route takes."""
    kinds = {route.kind for route in routes if route.share != (0, BUCKETS)}
    return [
        f'routes of kind "{kind}" leave buckets out: {", ".join(map(str, gaps))}; these messages would go to no sink'
        for kind in sorted(kinds)
        if (gaps := _gaps(route.share for route in routes if _covers(route.kind, kind)))
    ]


def _covers(pattern: str, kind: str) -> bool:
    """Whether every kind that matches one pattern matches the other, too. "?" stands for less than "*" does."""
    if pattern == kind:
        return True
    return (
        "?" not in pattern and re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), kind, re.DOTALL) is not None
    )


def _gaps(shares: Iterable[tuple[int, int]]) -> list[list[int]]:
    taken = {bucket for low, high in shares for bucket in range(low, high)}
    free = [bucket for bucket in range(BUCKETS) if bucket not in taken]
    islands = groupby(enumerate(free), lambda pair: pair[1] - pair[0])
    runs = [[bucket for _, bucket in run] for _, run in islands]
    return [[run[0], run[-1] + 1] for run in runs]
