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


class Ids(list[int]):
    """Message ids as a bigint[] that the server need not parse."""


class _PlacesDumper(Dumper):
    format = pq.Format.BINARY
    oid = 1010  # tid[]

    def dump(self, obj: Any) -> Buffer:
        return _array(27, [b"\x00\x00\x00\x06" + place for place in obj])


class _IdsDumper(Dumper):
    format = pq.Format.BINARY
    oid = 1016  # bigint[]

    def dump(self, obj: Any) -> Buffer:
        return _array(20, [_ID.pack(8, message_id) for message_id in obj])


_ID = struct.Struct("!iq")
psycopg.adapters.register_dumper(Places, _PlacesDumper)
psycopg.adapters.register_dumper(Ids, _IdsDumper)


def _array(element: int, items: Sequence[bytes]) -> bytes:
    """The binary format of an array of this type's values, each with its length before it."""
    return struct.pack("!iiIii", 1, 0, element, len(items), 1) + b"".join(items)


WIDEST = 1 << 22
"""Ids that a claim may be spread over to be told as bits, of which this makes half a MiB."""


def bits_of(ids: Sequence[int]) -> bytes | None:
    """A set of ids, a bit each from the lowest on, in the order of `get_bit`; None where they lie too far apart."""
    lowest, highest = min(ids), max(ids)
    if highest - lowest >= WIDEST:
        return None
    bits = bytearray((highest - lowest) // 8 + 1)
    for message_id in ids:
        at = message_id - lowest
        bits[at >> 3] |= 1 << (at & 7)
    return bytes(bits)


def lock_rows(
    conn: psycopg.Connection[Any], where: Mapping[str, Any], ids: Sequence[int], shards: Sequence[int]
) -> Places:
    """Find messages of a claim by their ids and shards, and hold them where they are until the transaction ends."""
    params = {**where, "ids": list(ids), "shards": list(shards)}
    return Places(row[0] for row in conn.execute(statement("claims/lock_rows"), params, binary=True))
