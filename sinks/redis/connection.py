"""One connection to Redis, for one sender."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import redis

from sinks.base import SinkUnavailable
from sinks.redis.errors import describe, refused

Argument = bytes | str | int


class RedisConnection:
    """Sends packed requests and says whether they can have been carried out."""

    def __init__(self, pool: redis.ConnectionPool) -> None:
        self.pool = pool
        self.peer: str | None = None
        """The server's address, while there is a connection to it by TCP."""

    def open(self) -> None:
        """Connect, unless it is already.

        Raises:
            SinkUnavailable: it cannot be reached now.
        """
        self.pool.release(self._connect())

    def call(self, *requests: bytes) -> list[Any]:
        """The answers to some requests, sent together, each a number of packed arguments under a header that counts
        them. What the server says to any but the first is an answer, and be it an error.

        Raises:
            SinkUnavailable: there is no answer, or the server refused the first request. The connection is dropped, so
                that the next call looks the address up again and logs in again: a demoted primary keeps its sockets
                open.
            redis.exceptions.NoScriptError: the script is not loaded; nothing was done.
        """
        connection = self._connect()
        left = answered = False
        try:
            connection.send_packed_command(list(requests))
            left = True
            answers = [connection.read_response()]
            answered = True
            return answers + [_answer(connection) for _ in requests[1:]]
        except redis.exceptions.NoScriptError:
            if len(requests) > 1:
                connection.disconnect()
            raise
        except redis.RedisError as error:
            connection.disconnect()
            # A request that did not leave as a whole is none: the server waits for its last byte.
            unknown = answered or (left and not refused(error))
            raise SinkUnavailable(describe(error), unknown=unknown) from error
        finally:
            self.pool.release(connection)

    def _connect(self) -> Any:
        try:
            connection = self.pool.get_connection()
        except redis.RedisError as error:
            raise SinkUnavailable(describe(error), unknown=False) from error
        self.peer = _peer(connection)
        return connection

    def drop(self) -> None:
        """Close the connection; the next call makes a new one."""
        self.peer = None
        self.pool.disconnect()


def _peer(connection: Any) -> str | None:
    try:
        name = connection._sock.getpeername()  # redis-py has no other way to ask
    except (AttributeError, OSError):
        return None
    return str(name[0]) if isinstance(name, tuple) else None


def _answer(connection: Any) -> Any:
    try:
        return connection.read_response()
    except redis.ResponseError as error:
        return error


def request(*arguments: Argument) -> bytes:
    """A packed request."""
    return b"*%d\r\n%b" % (len(arguments), bulks(arguments))


def bulk(argument: Argument) -> bytes:
    """One packed argument (RESP, https://redis.io/docs/latest/develop/reference/protocol-spec/).

    Packed here and not by redis-py: a batch has up to a dozen arguments a message, and this takes a third of the time.
    """
    data = argument if isinstance(argument, bytes) else str(argument).encode()
    return b"$%d\r\n%b\r\n" % (len(data), data)


def bulks(arguments: Iterable[Argument]) -> bytes:
    """Several packed arguments."""
    return b"".join(map(bulk, arguments))
