"""The database's schema: numbered files, each applied once, all that are missing or none.

1. look first, without any lock: most calls find no file to apply, and need no right to create anything;
2. else one transaction, of which only one at a time runs, applies every missing file and notes it;
3. whoever waited for it looks again, and finds nothing to do;
4. the owner of the schema also renews what others may have changed since: grants, identities of rows, indexes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, LiteralString

from psycopg import Connection
from psycopg.errors import Diagnostic, InsufficientPrivilege
from psycopg.sql import SQL, Identifier, Literal

from relay.database.connection import Database
from relay.database.locks import PATIENCE_S, Say, holders, with_patience
from relay.errors import RelayError, SchemaMismatch
from relay.statements import folder, statement

TO_ASCII = str.maketrans("─│├└┘▶▲→", "-|++'>^>")

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
    # A database in another encoding has no place for what comments are drawn with.
    parts = [(file.stem.partition("_"), file.read_text(encoding="utf-8").translate(TO_ASCII)) for file in files]
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
        RelayError: row security hides it from this role.
    """
    _refuse_hidden(database)
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
    if database.query(statement("database/owns_schema"))[0][0]:
        _renew(database, say)
        _repair_indexes(database, say)
    return applied


def script(after: int = 0) -> str:
    """What `migrate` would run on a database at version `after`: one statement, which is all or nothing wherever it is
    run, and leaves the settings of the transaction around it as they were."""
    steps = []
    for migration in migrations():
        if migration.version > after:
            values = {"version": Literal(migration.version).as_string(), "name": Literal(migration.name).as_string()}
            tag = f"$v{migration.version}$"
            steps.append(f"-- {migration}\nexecute {tag}\n{migration.text}{tag};\n")
            steps.append(f"{statement('database/record_migration').strip() % values};\n")
    steps.append(f"execute $rights$\n{grants()}$rights$;\n")
    begin = statement("database/begin_migration").strip()
    return statement("database/migration_script").format(begin=begin, steps="\n".join(steps))


def grants() -> str:
    """What gives the two group roles their rights, for psql."""
    return f"{statement('database/grants').strip()};\n"


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


def _renew(database: Database, say: Say) -> None:
    """Grant what the two roles need, whenever they were made; and give rows the identity that publications need."""
    with database.transaction() as conn, _remarks_to(say, conn):
        conn.execute(statement("database/begin_migration"))
        conn.execute(statement("database/grants"), prepare=False)
    while (done := database.query(statement("database/set_identities"), {"back": True})[0][0]) is not None:
        if not done:
            say(f"rows keep the identity that they have, as a table is locked by: {holders(database)}; run it again")
            return


def _refuse_hidden(database: Database) -> None:
    """
    Raises:
        RelayError: some rows cannot be seen, so nothing that this role found would be true.
    """
    hidden = [name for name, is_hidden in database.query(statement("database/row_security")) if is_hidden]
    if hidden:
        raise RelayError(hidden_rows(hidden))


def hidden_rows(tables: Sequence[str]) -> str:
    """What to say of tables that have row security."""
    return (
        f"row security hides rows of {', '.join(f'relay.{name}' for name in tables)}, so messages would stay: switch it"
        " off there, or give the relay's role BYPASSRLS"
    )


def _repair_indexes(database: Database, say: Say) -> None:
    for name, is_half_built_copy in database.query(statement("database/invalid_indexes")):
        say(f"index {name} was left half-built; {'dropping' if is_half_built_copy else 'rebuilding'} it")
        sql = statement("database/drop_index" if is_half_built_copy else "database/rebuild_index")
        database.connection().execute(SQL(sql).format(index=Identifier(name)))
