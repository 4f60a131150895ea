"""Where rows are (ctid), and how that is told the database."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg import pq
from psycopg.adapt import Buffer, Dumper

from relay.statements import statement


class Places(list[bytes]):
    """Row places as they came, for `ctid = any(…)`."""


class _PlacesDumper(Dumper):
    format = pq.Format.BINARY
    oid = 1010  # tid[]

    def dump(self, obj: Any) -> Buffer:
        head = struct.pack("!iiIii", 1, 0, 27, len(obj), 1)
        return head + b"".join([b"\x00\x00\x00\x06" + place for place in obj])


psycopg.adapters.register_dumper(Places, _PlacesDumper)


def lock_rows(
    conn: psycopg.Connection[Any], where: Mapping[str, Any], ids: Sequence[int], shards: Sequence[int]
) -> Places:
    """Find messages of a claim by their ids and shards, and hold them where they are until the transaction ends."""
    params = {**where, "ids": list(ids), "shards": list(shards)}
    return Places(row[0] for row in conn.execute(statement("lock_rows"), params, binary=True))
