"""Statements live in `sql/statements`, one a file: none in the Python of the relay and its sinks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for folder in ("relay", "sinks") for path in (ROOT / folder).rglob("*.py"))
STATEMENT = re.compile(
    r"""
    ^\s*(select|with\s+\w+\s+as|listen|unlisten|notify|truncate|vacuum|analyze|explain)\s
    | \bselect\b.+\bfrom\b
    | \binsert\s+into\b
    | \bupdate\s+\S+\s+set\b
    | \bdelete\s+from\b
    | \bcopy\s+\S+\s*(\(.*\)\s*)?(from|to)\s+std
    | \b(create|alter|drop)\s+(or\s+replace\s+)?(table|index|schema|function|trigger|role|view|database)\b
    | \bset\s+(local|session|role|transaction|search_path|\w+_timeout)\b
    """,
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Every string in a file that is not a docstring, with its line."""
    tree = ast.parse(source)
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.lineno, node.value


def test_there_are_sources_to_look_at() -> None:
    assert len(SOURCES) > 10


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_statement_is_written_in_python(path: Path) -> None:
    assert [(line, text) for line, text in texts(path.read_text()) if STATEMENT.search(text)] == []


@pytest.mark.parametrize(
    "text",
    [
        "select 1",
        "SELECT id FROM relay.outbox",
        "\n  with due as (select 1) update x set y = 1",
        "insert into relay.outbox (kind) values (%s)",
        "delete from relay.claims where token = %s",
        "copy relay.outbox (kind) from stdin",
        "listen relay",
        "set local lock_timeout = '1s'",
        "create table x ()",
    ],
)
def test_a_statement_is_recognised(text: str) -> None:
    assert STATEMENT.search(text)


@pytest.mark.parametrize("text", ["select a sink with --sink", "update to a newer release", "created", "set the URL"])
def test_a_sentence_is_not_taken_for_a_statement(text: str) -> None:
    assert not STATEMENT.search(f"To go on, {text}")


def test_docstrings_are_not_looked_at() -> None:
    assert list(texts('"""select 1"""\nx = "select 2"')) == [(2, "select 2")]
