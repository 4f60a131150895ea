"""Paths into the configuration's nested tables: `("sinks", "orders", "workers")` is `sinks.orders.workers`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

KeyPath = tuple[str | int, ...]

MISSING: Final = object()

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def spell(path: KeyPath) -> str:
    """The path as TOML writes it: `sinks.orders.client."bootstrap.servers"`, `routes[0].kind`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += "." * bool(text) + (part if _BARE.fullmatch(part) else json.dumps(part, ensure_ascii=False))
    return text


def find(tree: Any, path: KeyPath) -> Any:
    """The value at the path, or `MISSING`."""
    value = tree
    for part in path:
        if isinstance(value, str):
            return MISSING
        try:
            value = value[part]
        except (LookupError, TypeError):
            return MISSING
    return value


def put(tree: Any, path: KeyPath, value: Any) -> None:
    """Set the value at the path; tables that are missing on the way are made.

    Raises:
        ValueError: something on the way is no table; the text names it.
    """
    for depth, part in enumerate(path[:-1], start=1):
        inner = find(tree, (part,))
        if inner is MISSING:
            inner = tree[part] = {}
        if not isinstance(inner, (dict, list)):
            raise ValueError(f"a table at {spell(path[:depth])}")
        tree = inner
    tree[path[-1]] = value


def nearest(word: str, known: Sequence[str]) -> str:
    """How to name what was meant: the nearest known word, or all of them where none is near."""
    # Imported here because only a mistake needs it.
    from difflib import get_close_matches

    matches = get_close_matches(word, known, n=1)
    if matches:
        return f'the nearest is "{matches[0]}"'
    return f"one of {', '.join(sorted(known))}" if known else "there is none"
