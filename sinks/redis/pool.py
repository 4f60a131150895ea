"""redis-py's connection pools, set up for a sender: its own retries are off, the relay alone sends again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

from sinks.base import SinkConfig
from sinks.redis.url import Address, Place


def pool_at(place: Place, config: SinkConfig, address: Address | None = None) -> redis.ConnectionPool:
    """Connections to the server of a URL, to the primary that its sentinels name, or to one node of its cluster.

    Raises:
        ValueError: redis-py does not know an option of `client` or of the URL's query.
    """
    given = {**place.options, **config.client}
    sentinel_options = given.pop("sentinel_kwargs", {})
    if address is not None:
        given |= {"host": address[0], "port": address[1]}
    options = {"protocol": 2, "socket_keepalive": True, **given, **_ours(config.send_timeout)}
    if "path" in options:  # a Unix socket has no such option
        del options["socket_keepalive"]
    return _checked(lambda: _pool(place, options, sentinel_options, config.send_timeout))


def _checked(make: Callable[[], redis.ConnectionPool]) -> redis.ConnectionPool:
    try:
        pool = make()
        pool.connection_class(**pool.connection_kwargs)
    except (TypeError, ValueError, redis.RedisError) as error:
        raise ValueError(f"options that redis-py knows, in client or in the URL ({error})") from None
    return pool


def _pool(
    place: Place, options: dict[str, Any], sentinel_options: Mapping[str, Any], timeout: float
) -> redis.ConnectionPool:
    options = {**options, "redis_connect_func": _greet, "decode_responses": False}
    if place.kind != "sentinel":
        return redis.ConnectionPool(**options)
    if options.pop("connection_class", None) is not None:
        options["ssl"] = True
    # All of them together must leave time for the primary itself.
    short = _ours(timeout / (len(place.addresses) + 1))
    tls = {name: value for name, value in options.items() if name.startswith("ssl")}
    sentinel = Sentinel(place.addresses, sentinel_kwargs={"protocol": 2, **tls, **sentinel_options, **short})
    return SentinelConnectionPool(place.service, sentinel, **options)


def _ours(timeout: float) -> dict[str, Any]:
    return {"socket_timeout": timeout, "socket_connect_timeout": timeout, "retry": Retry(NoBackoff(), 0)}


def _greet(connection: Any) -> None:
    """redis-py's own handshake and a PING: a server that loads, or wants a login, says so before it gets a batch."""
    connection.on_connect()
    connection.send_command("PING", check_health=False)
    # Denied is an answer too: what this user may do shows when it sends.
    with suppress(redis.exceptions.NoPermissionError):
        connection.read_response()


def disconnect(pool: redis.ConnectionPool) -> None:
    """Close a pool's connections, those to sentinels too. It can be used again."""
    pool.disconnect()
    if isinstance(pool, SentinelConnectionPool):
        for client in pool.sentinel_manager.sentinels:
            client.close()
