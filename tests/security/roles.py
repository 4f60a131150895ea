"""Roles as an attacker may have them, in a database with the relay's schema."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier

ROLES = ("writer", "worker", "creator", "nobody")
"""A member of relay_writer, one of relay_worker, one that may create in `public`, one without any right."""

CONFIGURATION = """
insert into relay.sinks (name, shards, strict, hand_over)
values ('a', 8, true, null), ('b', 0, false, 900), ('c', 4, false, null);
insert into relay.routes (kind, sink, lo, hi)
values ('*', 'a', 0, 100), ('both', 'b', 0, 100), ('half\\%', 'b', 0, 50), ('half\\%', 'c', 50, 100);
insert into relay.relays (worker, idle_until) values ('idle', now() + interval '1 hour');
"""


@dataclass(frozen=True)
class World:
    """A database, and who is in it."""

    url: str
    names: dict[str, str]
    """Role → its name on this server."""
    owner: psycopg.Connection
    """The superuser's connection."""

    def url_of(self, role: str) -> str:
        return make_conninfo(self.url, user=self.names[role])

    @contextmanager
    def connect(self, role: str) -> Iterator[psycopg.Connection]:
        with psycopg.connect(self.url_of(role), autocommit=True) as conn:
            yield conn

    def rows(self, query: str, *parameters: object) -> list[tuple[object, ...]]:
        """What the superuser sees."""
        return self.owner.execute(query.encode(), parameters or None).fetchall()


@pytest.fixture
def world(relay_database_url: str) -> Iterator[World]:
    with psycopg.connect(relay_database_url, autocommit=True) as owner:
        owner.execute(CONFIGURATION)
        names = {role: f"{role}_{owner.info.dbname}" for role in ROLES}
        for name in names.values():
            owner.execute(SQL("create role {} login").format(Identifier(name)))
        owner.execute(SQL("grant relay_writer to {}").format(Identifier(names["writer"])))
        owner.execute(SQL("grant relay_worker to {}").format(Identifier(names["worker"])))
        # What PostgreSQL before 15 gave to everybody, and many databases still have.
        owner.execute(SQL("grant create on schema public to {}").format(Identifier(names["creator"])))
        for role in ("writer", "worker"):
            owner.execute(SQL("create schema {0} authorization {0}").format(Identifier(names[role])))
            owner.execute(SQL("grant usage on schema {} to public").format(Identifier(names[role])))
        yield World(relay_database_url, names, owner)
        for name in names.values():
            owner.execute(SQL("drop owned by {0} cascade; drop role {0}").format(Identifier(name)))
