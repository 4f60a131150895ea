"""The database's schema: numbered files, each applied once, all that are missing or none.

1. look first, without any lock: most calls find nothing to do, and need no right to create anything;
2. else one transaction, of which only one at a time runs, applies every missing file and notes it;
3. whoever waited for it looks again, and finds nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, LiteralString

from psycopg import Connection
from psycopg.errors import Diagnostic, InsufficientPrivilege
from psycopg.sql import SQL, Identifier, Literal

from relay.database.connection import Database
from relay.database.locks import PATIENCE_S, Say, with_patience
from relay.errors import RelayError, SchemaMismatch
from relay.statements import folder, statement

Query = Callable[[LiteralString], list[tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class Migration:
    """One file, `sql/migrations/NNNN_name.sql`."""

    version: int
    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.version:04}_{self.name}"


def migrations() -> list[Migration]:
    """Every file of this release, in order."""
    files = sorted((folder() / "migrations").glob("[0-9]*_*.sql"))
    parts = [(file.stem.partition("_"), file.read_text(encoding="utf-8")) for file in files]
    return [Migration(int(number), name, text) for (number, _, name), text in parts]


def pending(database: Database) -> list[Migration]:
    """The files that the database does not have yet. Takes no lock.

    Raises:
        SchemaMismatch: the database has more than this release knows.
    """
    return _pending(database.query)


def check_version(database: Database) -> None:
    """Refuse a schema that this release was not written for.

    Raises:
        SchemaMismatch: it is missing, older or newer; one line says what to do.
    """
    missing = pending(database)
    if not missing:
        return
    newest, at = migrations()[-1].version, missing[0].version - 1
    has = f'schema "relay" is at version {at}, this release needs {newest}' if at else 'there is no schema "relay"'
    raise SchemaMismatch(f"{has}; run: relay migrate")


def migrate(database: Database, *, say: Say = lambda text: None, patience: float = PATIENCE_S) -> list[Migration]:
    """Apply what is missing; return it.

    Args:
        say: told what it waits for, and what the server remarks.
        patience: seconds to try to get the locks.

    Raises:
        SchemaMismatch: the database is newer than this release.
        RelayError: it failed; nothing was changed.
    """
    applied: list[Migration] = []
    if pending(database):
        try:
            applied = with_patience(lambda: _apply_pending(database, say), database, say, patience)
        except RelayError as error:
            if isinstance(error.__cause__, InsufficientPrivilege):
                raise RelayError(
                    f"{str(error.__cause__).splitlines()[0]}; nothing was changed. Run it as the database's owner, "
                    "or give whoever that is the script: relay migrate --sql"
                ) from error
            raise
    _repair_indexes(database, say)
    return applied


def script(after: int = 0) -> str:
    """What `migrate` would run on a database at version `after`, for `psql -v ON_ERROR_STOP=1 -f`."""
    parts = ["begin;\n", f"{statement('database/begin_migration').strip()};\n"]
    for migration in migrations():
        if migration.version > after:
            values = {"version": Literal(migration.version).as_string(), "name": Literal(migration.name).as_string()}
            parts += [
                f"-- {migration}\n\n{migration.text}",
                f"{statement('database/record_migration').strip() % values};\n",
            ]
    return "\n".join([*parts, "commit;\n"])


def invalid_indexes(database: Database) -> list[str]:
    """Indexes that an interrupted concurrent build left behind."""
    return [name for name, _ in database.query(statement("database/invalid_indexes"))]


def _pending(query: Query) -> list[Migration]:
    there: set[int] = set()
    if query(statement("database/has_migrations"))[0][0]:
        there = {version for (version,) in query(statement("database/applied_migrations"))}
    ours = migrations()
    newer = sorted(there - {migration.version for migration in ours})
    if newer:
        raise SchemaMismatch(
            f'schema "relay" is at version {newer[-1]}, newer than this release, which knows {ours[-1].version}; '
            "upgrade the relay: pip install --upgrade outbox-relay"
        )
    return [migration for migration in ours if migration.version not in there]


def _apply_pending(database: Database, say: Say) -> list[Migration]:
    with database.transaction() as conn, _remarks_to(say, conn):
        conn.execute(statement("database/begin_migration"))
        missing = _pending(lambda sql: conn.execute(sql).fetchall())
        for migration in missing:
            # As bytes and without parameters: a file holds many statements, and "%" means itself.
            conn.execute(migration.text.encode(), prepare=False)
            conn.execute(statement("database/record_migration"), {"version": migration.version, "name": migration.name})
    return missing


@contextmanager
def _remarks_to(say: Say, conn: Connection[Any]) -> Iterator[None]:
    def pass_on(remark: Diagnostic) -> None:
        say(remark.message_primary or "")

    conn.add_notice_handler(pass_on)
    try:
        yield
    finally:
        conn.remove_notice_handler(pass_on)


def _repair_indexes(database: Database, say: Say) -> None:
    for name, is_half_built_copy in database.query(statement("database/invalid_indexes")):
        say(f"index {name} was left half-built; {'dropping' if is_half_built_copy else 'rebuilding'} it")
        sql = statement("database/drop_index" if is_half_built_copy else "database/rebuild_index")
        database.connection().execute(SQL(sql).format(index=Identifier(name)))
