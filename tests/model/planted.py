"""Bugs that the checker must find: copies of the product with one of its safeguards taken out.

A patch that does not fit any more is an error: whoever changes such a place changes the patch too.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[2]
TREE = ("relay", "sinks", "sql")


@dataclass(frozen=True)
class Plant:
    """One bug, and where it shows soon.

    Args:
        changes: file, what stands there once, what stands there instead.
        finds: invariants, one of which must not hold.
    """

    changes: Sequence[tuple[str, str, str]]
    finds: frozenset[str]
    sinks: Sequence[str]
    steps: Sequence[str]
    keys: Mapping[str, Any] = field(default_factory=dict)
    """Of every sink, in all relays."""


PLANTS: Mapping[str, Plant] = {
    "settle without token": Plant(
        [
            ("relay/claims/claim.py", "        else:\n            raise LostClaim\n", ""),
            ("sql/claims/lock_rows.sql", "          and o.claim_token is not distinct from %(mark)s\n", ""),
            ("sql/settle/delete_delivered.sql", " and claim_token = %(token)s", ""),
        ],
        frozenset({"lost", "second copies"}),
        ("stream", "jobs"),
        ("freeze", "freeze redis", "kill redis"),
        {"lease": "2s", "send_timeout": "1s"},
    ),
    "no revoke": Plant(
        [("sinks/redis/fence.lua", "elseif mark ~= 'revoked' then", "elseif false then")],
        frozenset({"second copies"}),
        ("stream", "stream_keys", "jobs"),
        ("hold requests",),
    ),
    "edge too far": Plant(
        [("relay/claims/edge.py", "quiet = over if writing else drawn", "quiet = drawn")],
        frozenset({"out of order", "stranded"}),
        ("stream_keys", "jobs_keys"),
        ("hold snapshot", "look"),
    ),
    "forgotten answer": Plant(
        [("sinks/redis/fence.lua", "if before then", "if false then")],
        frozenset({"second copies"}),
        ("stream", "stream_keys", "jobs"),
        ("freeze redis",),
        {"lease": "4s", "send_timeout": "1s"},
    ),
    "prior token dropped": Plant(
        [
            (
                "sql/process/reap_rows.sql",
                "prior_tokens = relay.add_token(prior_tokens, %(token)s::uuid)",
                "prior_tokens = null",
            )
        ],
        frozenset({"second copies"}),
        ("stream", "stream_keys", "jobs"),
        ("kill", "freeze", "disturb redis"),
    ),
}


@contextmanager
def planted(name: str) -> Iterator[Path]:
    """A copy of the product with this bug, for the length of a `with` block.

    Raises:
        ValueError: a patch does not fit the product any more.
    """
    with TemporaryDirectory(prefix="relay-model-planted-") as folder:
        copy = Path(folder)
        for part in TREE:
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        for file, old, new in PLANTS[name].changes:
            text = (copy / file).read_text(encoding="utf-8")
            if text.count(old) != 1:
                raise ValueError(f'planted bug "{name}": {file} has not once, but {text.count(old)} times: {old!r}')
            (copy / file).write_text(text.replace(old, new), encoding="utf-8")
        yield copy
