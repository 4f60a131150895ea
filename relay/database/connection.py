"""One connection to PostgreSQL that comes back after every kind of loss.

Duties:

1. connect when needed, and give up a connection that failed;
2. bound every statement by a deadline of our own, as a server behind a firewall may never answer;
3. say which failures pass by themselves (`DatabaseUnavailable`) and which need a person (`RelayError`).

It never repeats a statement: whether that is safe only the caller knows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, LiteralString

import psycopg
from psycopg import errors as pg
from psycopg.types.numeric import Int8BinaryLoader
from psycopg.types.string import ByteaBinaryLoader

from relay.database import encodings
from relay.database.session import conninfo, options_of
from relay.errors import DatabaseTooSlow, DatabaseUnavailable, RelayError
from relay.statements import statement

EPOCH_2000_US = 946_684_800_000_000
"""PostgreSQL's binary timestamps count from 2000; microseconds from 1970 to there."""

STATEMENT_SHARE = 0.9
"""The server itself ends a statement after this part of what we wait for it, so that none of ours is left behind."""

CANCEL_S = 2.0
"""So long it may take to ask the server to end a statement."""

# What passes by itself: SQLSTATE classes and codes of a restart, a fail-over, a time-out, a conflict, an overload.
PASSING_CLASSES = ("08", "40", "53", "57", "58")
PASSING_CODES = ("25006", "25P03", "55006", "55P03", "26000", "XX000")
# Of a table that is published, and that has not the identity yet that this needs (`relay.database.identities`).
PUBLISHED_CODES = ("55000", "42P10")


class _Connection(psycopg.Connection[Any]):
    """A connection whose every wait for the server ends."""

    deadline_s: float = 30.0
    pooled = False

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().wait(_until(gen, time.monotonic() + self.deadline_s), *args, **kwargs)
        except _TooLate:
            # Nothing more can be said on it, not even "rollback".
            if self.pooled:
                self._end_statement()
            self.close()
            raise

    def _end_statement(self) -> None:
        """End it on the server too: nothing else does so behind a pooler, and it would keep one of its connections."""
        with suppress(psycopg.Error):
            self.cancel_safe(timeout=CANCEL_S)


class _TooLate(psycopg.OperationalError):
    pass


def _until(gen: Generator[Any, Any, Any], deadline: float) -> Generator[Any, Any, Any]:
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() > deadline:
                gen.close()
                raise _TooLate("the server did not answer in time")
            wanted = gen.send(ready)
    except StopIteration as stop:
        return stop.value


class Database:
    """One connection, used by one thread.

    Args:
        url: connection string, or what gives it anew for each connection: its password may have been rotated.
        timeout: seconds that connecting or one statement may take.
        name: shown as ``application_name``.
        pooled: True where `url` is known to lead through a pooler in transaction mode: no prepared statements, no
            options. It is found out otherwise.
        brief: True for a command, whose few statements are planned for their values.
    """

    def __init__(
        self,
        url: str | Callable[[], str],
        *,
        timeout: float = 30.0,
        name: str = "outbox-relay",
        pooled: bool = False,
        brief: bool = False,
    ) -> None:
        self._url = url
        self._brief = brief
        self._timeout = timeout
        self._name = name
        self.pooled = pooled
        self.connections = 0
        """How many were made so far: a new one may lead to a server that has forgotten something."""
        self._conn: _Connection | None = None

    def query(self, sql: LiteralString, params: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run one statement in its own transaction; return its rows, in PostgreSQL's binary format.

        Raises:
            DatabaseUnavailable: the statement failed or its outcome is unknown, and time may heal it.
            RelayError: a person has to do something: a missing grant, a missing table.
        """
        with self._one_statement() as conn:
            cursor = conn.execute(sql, params, binary=True)
            return cursor.fetchall() if cursor.description else []

    def run(self, sql: LiteralString, params: dict[str, Any] | None = None) -> int:
        """Run one statement in its own transaction; return how many rows it changed. Raises as `query` does."""
        with self._one_statement() as conn:
            return conn.execute(sql, params).rowcount

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Connection[Any]]:
        """A transaction around several statements. Raises as `query` does."""
        with self._translated() as conn, conn.transaction():
            if self.pooled:
                conn.execute(statement("database/begin"), {"local": True})
            yield conn

    @contextmanager
    def _one_statement(self) -> Iterator[psycopg.Connection[Any]]:
        # Connecting finds out whether a pooler is in between.
        with self._translated() as conn, self.transaction() if self.pooled else nullcontext():
            yield conn

    def close(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    @property
    def connected(self) -> bool:
        return self._conn is not None

    @property
    def encoding(self) -> str:
        """The codec of texts as the database keeps them; UTF-8 where it does not care."""
        return encodings.codec_of(self.connection().info.parameter_status("server_encoding") or "UTF8") or "utf-8"

    def connection(self) -> psycopg.Connection[Any]:
        """The live connection, made if there is none. Only for what `query` cannot do, such as LISTEN.

        Raises:
            DatabaseUnavailable, RelayError: none can be made, as of `query`.
        """
        if self._conn is None or self._conn.closed:
            try:
                self._conn = self._connect()
            except psycopg.Error as error:
                raise translated(error) from error
        return self._conn

    def _connect(self) -> _Connection:
        try:
            conn = self._connect_as(pooled=self.pooled)
        except psycopg.OperationalError as error:
            # PgBouncer's own words for options that it does not take.
            if self.pooled or "unsupported startup parameter" not in str(error):
                raise
            self.pooled = True
            conn = self._connect_as(pooled=True)
        conn.deadline_s = self._timeout
        # Said with every BEGIN: a pooler passes no options on, and each statement has to see what was committed before.
        conn.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        self.connections += 1
        self.pooled = self.pooled or not self._begin_session(conn)
        conn.pooled = self.pooled
        conn.prepare_threshold = None if self.pooled else 5 if self._brief else 0
        if not self._brief:
            encodings.fit(conn)
        # What a writer supplied stays bytes and times stay integers: nothing is parsed that is only passed on, and what
        # cannot be read is found out message by message.
        conn.adapters.register_loader("json", ByteaBinaryLoader)
        conn.adapters.register_loader("jsonb", ByteaBinaryLoader)
        conn.adapters.register_loader("timestamptz", Int8BinaryLoader)
        return conn

    def _connect_as(self, *, pooled: bool) -> _Connection:
        url = self._url if isinstance(self._url, str) else self._url()
        options = () if pooled else options_of(brief=self._brief)
        info = conninfo(url, timeout=self._timeout, name=self._name, options=options)
        return _Connection.connect(info, autocommit=True)

    def _begin_session(self, conn: _Connection) -> bool:
        """Bound what the server does for us; False where a pooler is in between."""
        try:
            row = conn.execute(statement("database/backend_pid"), prepare=False).fetchone()
            direct = row is not None and row[0] == conn.info.backend_pid
            if direct:
                conn.execute(statement("database/begin"), {"local": False}, prepare=False)
                bounds = {"timeout": self._timeout * STATEMENT_SHARE}
                conn.execute(statement("database/begin_session"), bounds, prepare=False)
        except psycopg.Error:
            conn.close()
            raise
        return direct

    @contextmanager
    def _translated(self) -> Iterator[psycopg.Connection[Any]]:
        try:
            yield self.connection()
        except psycopg.Error as error:
            if not isinstance(error, pg.SerializationFailure | pg.DeadlockDetected | pg.LockNotAvailable):
                # Whatever else went wrong, a new connection starts from a known state.
                self.close()
            raise translated(error) from error


def translated(error: psycopg.Error) -> RelayError:
    """The error of ours for one of psycopg's."""
    state = error.sqlstate
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, _TooLate) or state == "57014":
        return DatabaseTooSlow(f"{text} ({state or 'no answer'})")
    if state is None:
        lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        return DatabaseUnavailable(text) if lost else RelayError(text)
    if state in PUBLISHED_CODES:
        return DatabaseUnavailable(f"{text} ({state}): relays set that within seconds; where none runs: relay migrate")
    if state.startswith(PASSING_CLASSES) or state in PASSING_CODES:
        return DatabaseUnavailable(f"{text} ({state})")
    if state == "42501":
        return RelayError(f"{text} ({state}): grant it to the relay's role, or grant relay_worker to that role")
    if state in ("3F000", "42P01", "42703", "42883"):
        return RelayError(f"{text} ({state}): the schema is missing or does not fit; run: relay migrate")
    return RelayError(f"{text} ({state})")


def us_since_1970(binary: int) -> int:
    """Microseconds since 1970 from what the binary format gives for a timestamptz."""
    return binary + EPOCH_2000_US
