"""Databases that are not in UTF-8: what a relay writes must fit into them.

A message came from the database, so it fits. What a broker says of one may not, and a claim whose outcome cannot be
written could never be settled: characters that the database does not have become question marks.
"""

from __future__ import annotations

import codecs
import json
from functools import partial
from typing import Any

import psycopg
from psycopg.adapt import Buffer
from psycopg.types.json import set_json_dumps
from psycopg.types.string import StrDumper


def fit(conn: psycopg.Connection[Any]) -> None:
    """Let everything that this connection writes fit into its database."""
    # JSON not as "\\u20ac": a database in any other encoding than UTF-8 refuses that.
    set_json_dumps(partial(json.dumps, ensure_ascii=False), conn)
    codec = codec_of(conn.info.parameter_status("server_encoding") or "UTF8")
    if codec is None:
        return

    def fitting(text: str) -> str:
        return text.encode(codec, "replace").decode(codec)

    class FittingDumper(StrDumper):
        def dump(self, obj: str) -> Buffer | None:
            return super().dump(fitting(obj))

    conn.adapters.register_dumper(str, FittingDumper)
    set_json_dumps(lambda value: fitting(json.dumps(value, ensure_ascii=False)), conn)


def codec_of(encoding: str) -> str | None:
    """Python's name for an encoding of PostgreSQL's; None where every text fits, or Python does not know it."""
    if encoding in ("UTF8", "SQL_ASCII"):
        return None
    name = encoding.replace("WIN", "cp").replace("KOI8", "koi8_")
    try:
        return codecs.lookup(name).name
    except LookupError:
        return None
