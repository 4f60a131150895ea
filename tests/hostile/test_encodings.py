"""Databases that are not in UTF-8: any bytes as text, bytes that have no character, and characters that they lack.

What else could go the same way: an encoding that has no codec here, a reason from a broker with characters that the
database has not, a person's command that prints what was written.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from relay.database.schema import migrations
from sinks import memory
from sinks.base import Message, Reject
from tests.command import Command
from tests.harness.served import Served
from tests.servers.postgres import with_database


@contextmanager
def database(server: str, encoding: str) -> Iterator[str]:
    """A database in an encoding, with the relay's schema: its comments hold characters that not every one has."""
    name = f"test_{uuid4().hex[:16]}"
    with psycopg.connect(server, autocommit=True) as conn:
        options = f"template template0 encoding '{encoding}' lc_collate 'C' lc_ctype 'C'"
        conn.execute(f"create database {name} {options}".encode())
    url = with_database(server, name)
    try:
        with psycopg.connect(url) as conn:
            for migration in migrations():
                conn.execute(migration.text.encode("ascii", errors="replace"))
                conn.execute(
                    "insert into relay.migrations (version, name) values (%s, %s)", [migration.version, migration.name]
                )
        yield url
    finally:
        with psycopg.connect(server, autocommit=True) as conn:
            conn.execute(f"drop database {name} with (force)".encode())


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    memory.forget("main")


BAD = {"SQL_ASCII": b"\xff\xfe", "WIN1252": b"\x81", "LATIN1": b"\x81\xff"}
"""Bytes that such a database takes as text. Those of the first two are none in UTF-8; the third one's always are."""


@pytest.mark.parametrize("order", ["none", "key"])
@pytest.mark.parametrize("encoding", BAD)
def test_a_text_that_cannot_be_read_is_one_messages_fault(
    postgres: str, tmp_path: Path, encoding: str, order: str
) -> None:
    bad = BAD[encoding]
    readable = encoding == "LATIN1"
    with database(postgres, encoding) as url, Served(url, {"main": {"type": "memory", "order": order}}) as served:
        ids = []
        with psycopg.connect(url, autocommit=True, client_encoding="SQL_ASCII") as conn:
            for kind, key, payload, headers in [
                (b"made", b"a", b'"1"', b"{}"),
                (b"made" + bad, b"a", b'"2"', b"{}"),
                (b"made", b"b" + bad, b'"3"', b"{}"),
                (b"made", b"c", b'"' + bad + b'"', b"{}"),
                (b"made", b"d", b'"4"', b'{"h": "' + bad + b'"}'),
                (b"made", b"b" + bad, b'"5"', b"{}"),
                (b"made", b"a", b'"6"', b"{}"),
            ]:
                values = b", ".join(b"'" + value + b"'" for value in (kind, key, payload, headers, payload))
                columns = b"kind, key, payload, headers, dedupe_key"
                text = b"insert into relay.outbox (" + columns + b") values (" + values + b") returning id"
                row = conn.execute(text).fetchone()
                assert row
                ids.append(row[0])
        served.work(ids)
        dead = served.dead()
        assert len(memory.delivered("main")) + len(dead) == len(ids)
        assert not {ids[0], ids[-1]} & dead.keys()
        assert bool(dead) is not readable
        relay = Command(url, tmp_path)
        relay.configure('[sinks.main]\ntype = "memory"\n')
        assert len(relay("dead", "list").splitlines()) == (len(dead) + 1 if dead else 1)
        if dead:
            shown = relay("dead", "show", str(ids[3]), "--payload")
            assert "cannot be read" in shown
            assert "\N{REPLACEMENT CHARACTER}" in shown


def test_a_reason_with_characters_that_the_database_lacks_is_written_all_the_same(postgres: str) -> None:
    def refuse(message: Message) -> Reject:
        return Reject("\N{SNOWMAN} \N{LATIN SMALL LETTER E WITH ACUTE}")

    with database(postgres, "LATIN1") as url, Served(url, {"main": {"type": "memory"}}) as served:
        memory.intercept("main", refuse)
        (row,) = served.sql("insert into relay.outbox (kind, payload) values ('made', '1') returning id")
        served.work([row[0]])
        assert served.dead() == {row[0]: "? \N{LATIN SMALL LETTER E WITH ACUTE}"}
