"""Texts of databases that are not in UTF-8."""

from __future__ import annotations

import codecs
from typing import Any

import psycopg
from psycopg.adapt import Buffer
from psycopg.types.string import StrDumper


def codec_of(conn: psycopg.Connection[Any]) -> str:
    """Python's name for a database's encoding; UTF-8 where the database has none, or Python does not know it."""
    name = (conn.info.parameter_status("server_encoding") or "UTF8").lower()
    try:
        return codecs.lookup(name.replace("win", "cp")).name
    except LookupError:
        return "utf-8"


def write_what_fits(conn: psycopg.Connection[Any]) -> None:
    """Replace, in texts that are written, the characters that this database does not have. A reason that a broker gave
    must not keep a settle from being written."""
    codec = codec_of(conn)
    if codec == "utf-8":
        return

    class Representable(StrDumper):
        def dump(self, obj: str) -> Buffer | None:
            return super().dump(obj.encode(codec, errors="replace").decode(codec))

    conn.adapters.register_dumper(str, Representable)
