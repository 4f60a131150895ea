"""Shares that leave buckets out, as `relay config check` tells them."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.config.models import Route
from relay.config.shares import share_gaps
from tests.unit.commands.test_cli import relay
from tests.unit.configured import MEMORY, write


@pytest.mark.parametrize(
    ("routes", "gaps"),
    [
        ([("x", 0, 40), ("x", 60, 100)], "[40, 60]"),
        ([("x", 10, 50)], "[0, 10], [50, 100]"),
        ([("x.*", 0, 50), ("*", 0, 100)], None),
        ([("x", 0, 50), ("?", 50, 100), ("?", 0, 50)], "[50, 100]"),
        ([("x", 0, 50), ("y", 50, 100)], "[50, 100]"),
        ([("a[b]", 0, 50), ("a[*", 50, 100), ("a[*", 0, 50)], None),
    ],
)
def test_buckets_without_a_route(routes: list[tuple[str, int, int]], gaps: str | None) -> None:
    found = share_gaps([Route(kind=kind, sink="s", share=(low, high)) for kind, low, high in routes])
    assert bool(found) == (gaps is not None)
    assert not gaps or f"leave buckets out: {gaps};" in found[0]


def test_config_check_tells_them(tmp_path: Path) -> None:
    write(tmp_path, MEMORY + '[[routes]]\nkind = "x"\nsink = "orders"\nshare = [0, 40]\n')
    done = relay("config", "check", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert 'routes of kind "x" leave buckets out: [40, 100]' in done.stderr
