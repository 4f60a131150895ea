"""redis-py's connection pools, set up for a sender: its own retries are off, the relay alone sends again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from sinks.base import SinkConfig
from sinks.files import check_files
from sinks.redis.url import Address, Place

SENTINEL_S: Final = 1.0
"""Seconds that a sentinel has for its answer."""


def pool_at(place: Place, config: SinkConfig, address: Address | None = None) -> redis.ConnectionPool:
    """Connections to the server of a URL, or to the one of its servers that has this address.

    Raises:
        ValueError: redis-py does not know an option of `client` or of the URL's query.
    """
    given = {**place.options, **config.client}
    given.pop("sentinel_kwargs", None)
    if address is not None:
        given |= {"host": address[0], "port": address[1]}
    options = {"protocol": 2, "socket_keepalive": True, **given, **_ours(config.send_timeout)}
    if "path" in options:  # a Unix socket has no such option
        del options["socket_keepalive"]
    return _checked(lambda: redis.ConnectionPool(**options, redis_connect_func=_greet, decode_responses=False))


def sentinel_pools(place: Place, config: SinkConfig) -> list[redis.ConnectionPool]:
    """Connections to each of a URL's sentinels. Their login and TLS options are in `client.sentinel_kwargs`.

    Raises:
        ValueError: redis-py does not know an option.
    """
    given = {**place.options, **config.client}
    tls = {name: value for name, value in given.items() if name.startswith("ssl")}
    if "connection_class" in place.options:
        tls["ssl"] = True
    # All of them together must leave time for the primary itself.
    timeouts = _ours(min(SENTINEL_S, config.send_timeout / (len(place.addresses) + 1)))
    options = {"protocol": 2, **tls, **given.get("sentinel_kwargs", {}), **timeouts, "decode_responses": False}

    def pool(host: str, port: int) -> redis.ConnectionPool:
        return _checked(lambda: redis.Redis(host, port, **options).connection_pool)

    return [pool(*address) for address in place.addresses]


def _checked(make: Callable[[], redis.ConnectionPool]) -> redis.ConnectionPool:
    try:
        pool = make()
        pool.connection_class(**pool.connection_kwargs)
    except (TypeError, ValueError, redis.RedisError) as error:
        raise ValueError(f"options that redis-py knows, in client or in the URL ({error})") from None
    check_files(pool.connection_kwargs, ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile"))
    return pool


def _ours(timeout: float) -> dict[str, Any]:
    return {"socket_timeout": timeout, "socket_connect_timeout": timeout, "retry": Retry(NoBackoff(), 0)}


def _greet(connection: Any) -> None:
    """redis-py's own handshake and a PING: a server that loads, or wants a login, says so before it gets a batch."""
    connection.on_connect()
    connection.send_command("PING", check_health=False)
    # Denied is an answer too: what this user may do shows when it sends.
    with suppress(redis.exceptions.NoPermissionError):
        connection.read_response()
