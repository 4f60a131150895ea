"""The randomized checker's planted bugs still fit the product. That they are found: `tests/e2e/test_model.py`."""

from __future__ import annotations

import pytest

from tests.model.planted import PLANTS, planted


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_bug_fits(name: str) -> None:
    with planted(name) as tree:
        for file, old, _ in PLANTS[name].changes:
            assert old not in (tree / file).read_text()
