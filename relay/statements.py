"""SQL comes from files: one statement a file, and its name is what the code calls it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, LiteralString, cast


@cache
def folder() -> Path:
    """The folder with the SQL: inside the installed package, or beside it in a checkout."""
    here = Path(__file__).resolve().parent
    inside = here / "sql"
    return inside if inside.is_dir() else here.parent / "sql"


@cache
def statement(name: str) -> LiteralString:
    """The text of ``sql/NAME.sql``."""
    # The files are part of the program, which is what LiteralString vouches for.
    text: Any = (folder() / f"{name}.sql").read_text(encoding="utf-8")
    return cast(LiteralString, text)
