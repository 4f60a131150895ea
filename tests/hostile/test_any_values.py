"""Any values at all, found by Hypothesis, in every column that a writer may set.

What else could go the same way: two hostile columns in one row, and two hostile rows in one claim.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sinks import memory
from tests.harness.served import Served

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
NUMBERS = st.integers() | st.floats() | st.integers(-6000, 6000).map(lambda digits: Raw(f"1e{digits}"))
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
DEPTHS = st.integers(0, 2000)


class Raw(str):
    """JSON text that stands for itself."""


def json_text(value: Any) -> str:
    if isinstance(value, Raw):
        return value
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{json_text(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_text, value)) + "]"
    return json.dumps(value)


@st.composite
def headers(draw: st.DrawFn) -> str:
    depth = draw(st.just(0) | DEPTHS)
    found = draw(st.dictionaries(TEXTS, JSON, max_size=5))
    if depth:
        found["deep"] = Raw("[" * depth + "]" * depth)
    return json_text(found)


ROWS = st.fixed_dictionaries(
    {"kind": TEXTS},
    optional={
        "key": TEXTS,
        "headers": headers(),
        "payload": JSON.map(json_text),
        "body": st.binary(max_size=40),
        "message_id": st.uuids(),
        "run_at": st.integers(-(2**35), 2**30).map(lambda second: datetime.fromtimestamp(second, UTC)),
        "max_attempts": st.integers(-1, 2**31 - 1),
        "dedupe_key": TEXTS,
    },
)


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    memory.forget("main")
    yield
    memory.forget("main")


@pytest.mark.parametrize("order", ["none", "key"])
def test_each_message_of_a_batch_is_delivered_dead_or_refused(relay_database_url: str, order: str) -> None:
    with ExitStack() as stack:
        served = stack.enter_context(Served(relay_database_url, {"main": {"type": "memory", "order": order}}))
        conn = stack.enter_context(psycopg.connect(relay_database_url, autocommit=True))

        @settings(
            max_examples=40,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.explicit, Phase.generate, Phase.shrink],
        )
        @given(st.lists(ROWS, min_size=1, max_size=6))
        def check(rows: list[dict[str, Any]]) -> None:
            memory.forget("main")
            ids = []
            for row in rows:
                values = {**row, **({} if "payload" in row or "body" in row else {"payload": "{}"})}
                for id in (insert(conn, values), insert(conn, {"kind": "made", "payload": "{}"})):
                    ids.extend([id] if id is not None else [])
            served.work(ids)
            gone = {message.id for message in memory.delivered("main")} | served.dead().keys()
            assert set(ids) <= gone

        check()


def insert(conn: psycopg.Connection[Any], values: dict[str, Any]) -> int | None:
    """Write one message; None where that is refused, or is a duplicate."""
    text = f"insert into relay.outbox ({', '.join(values)}) values ({', '.join(['%s'] * len(values))}) returning id"
    try:
        row = conn.execute(text.encode(), list(values.values())).fetchone()
    except psycopg.Error:
        return None
    return row[0] if row else None
