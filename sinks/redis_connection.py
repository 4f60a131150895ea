"""One connection to Redis, for one sender. redis-py's own retries are off: the relay alone sends again."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from typing import Annotated, Any

import redis
from pydantic import AfterValidator, Field
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.retry import Retry

from sinks.base import SinkConfig, SinkUnavailable
from sinks.redis_errors import describe, refused

log = logging.getLogger("sinks.redis")

LARGEST_ARGUMENT = 512 * 2**20
"""Bytes: `proto-max-bulk-len` of a server that nobody has changed (redis.conf)."""

Argument = bytes | str | int


def _redis_url(url: str) -> str:
    try:
        parse_url(url)
    except ValueError:
        # redis-py's text would quote the URL, and with it the password.
        raise ValueError("a Redis URL: redis://host:port/db, rediss://… (TLS) or unix://path") from None
    return url


RedisUrl = Annotated[str, AfterValidator(_redis_url), Field(repr=False)]


class RedisConnection:
    """Sends one packed request at a time and says whether it can have been carried out.

    Raises:
        ValueError: redis-py does not know an option of `client` or of the URL's query.
    """

    def __init__(self, url: str, config: SinkConfig) -> None:
        self._pool = _pool(url, config)
        self.largest_argument = LARGEST_ARGUMENT
        """Bytes; as the server said when it was opened."""

    def open(self) -> None:
        """Connect, and log a warning where this server may forget what it acknowledged.

        Raises:
            SinkUnavailable: it cannot be reached now.
        """
        self._pool.release(self._connect())
        client = redis.Redis(connection_pool=self._pool)
        warn_of_eviction(eviction_policy(client))
        self.largest_argument = _largest_argument(client)

    def call(self, packed: bytes) -> Any:
        """The answer to a request: packed arguments under a header that counts them.

        Raises:
            SinkUnavailable: there is no answer, or the server refused. The connection is dropped, so that the next
                call looks the address up again and logs in again: a demoted primary keeps its sockets open.
            redis.exceptions.NoScriptError: the script is not loaded; nothing was done.
        """
        connection = self._connect()
        left = False
        try:
            connection.send_packed_command([packed])
            left = True
            return connection.read_response()
        except redis.exceptions.NoScriptError:
            raise
        except redis.RedisError as error:
            connection.disconnect()
            # A request that did not leave as a whole is none: the server waits for its last byte.
            raise SinkUnavailable(describe(error), unknown=left and not refused(error)) from error
        finally:
            self._pool.release(connection)

    def _connect(self) -> Any:
        try:
            return self._pool.get_connection()
        except redis.RedisError as error:
            raise SinkUnavailable(describe(error), unknown=False) from error

    def drop(self) -> None:
        """Close the connection; the next call makes a new one."""
        self._pool.disconnect()


def bulk(argument: Argument) -> bytes:
    """One packed argument (RESP, https://redis.io/docs/latest/develop/reference/protocol-spec/).

    Packed here and not by redis-py: a batch has up to a dozen arguments a message, and this takes a third of the time.
    """
    data = argument if isinstance(argument, bytes) else str(argument).encode()
    return b"$%d\r\n%b\r\n" % (len(data), data)


def bulks(arguments: Iterable[Argument]) -> bytes:
    """Several packed arguments."""
    return b"".join(map(bulk, arguments))


def _pool(url: str, config: SinkConfig) -> redis.ConnectionPool:
    # Sentinel and Cluster come in here: another pool behind the same three calls.
    options: dict[str, Any] = {"protocol": 2, "socket_keepalive": True, **config.client}
    options |= {
        "socket_timeout": config.send_timeout,
        "socket_connect_timeout": config.send_timeout,
        "retry": Retry(NoBackoff(), 0),
        "redis_connect_func": _greet,
        "decode_responses": False,
    }
    try:
        pool = redis.ConnectionPool.from_url(url, **options)
        pool.connection_class(**pool.connection_kwargs)
    except (TypeError, ValueError, redis.RedisError) as error:
        raise ValueError(f"options that redis-py knows, in client or in the URL ({error})") from None
    return pool


def _greet(connection: Any) -> None:
    """redis-py's own handshake and a PING: a server that loads, or wants a login, says so before it gets a batch."""
    connection.on_connect()
    connection.send_command("PING", check_health=False)
    # Denied is an answer too: what this user may do shows when it sends.
    with suppress(redis.exceptions.NoPermissionError):
        connection.read_response()


def eviction_policy(client: redis.Redis) -> str:
    """`maxmemory-policy`, or `"unknown"` where a managed server hides it."""
    try:
        return str(client.info("memory").get("maxmemory_policy", "unknown"))
    except redis.RedisError:
        return "unknown"


@cache
def warn_of_eviction(policy: str) -> None:
    """Log, once in this process for each policy, what it means for messages that were acknowledged."""
    if policy == "unknown":
        log.info("redis_eviction policy=unknown: it should be noeviction, or Redis may drop what it acknowledged")
    elif policy.startswith("volatile-"):
        log.warning(
            "redis_eviction policy=%s: under memory pressure marks of unsettled batches may go, and with them "
            "the protection against duplicates; use noeviction",
            policy,
        )
    elif policy != "noeviction":
        log.warning(
            "redis_eviction policy=%s: under memory pressure delivered messages may be dropped; use noeviction", policy
        )


def _largest_argument(client: redis.Redis) -> int:
    try:
        return int(client.config_get("proto-max-bulk-len")["proto-max-bulk-len"] or LARGEST_ARGUMENT)
    except (redis.RedisError, KeyError):
        return LARGEST_ARGUMENT
