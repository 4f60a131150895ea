"""Where Redis is, as a URL says it.

| URL | what is there |
| --- | --- |
| `redis://host:6379/0`, `unix:///path` | one server |
| `redis+sentinel://host:26379,host2:26379/service/0` | the primary that these sentinels name |
| `redis+cluster://host:6379,host2:6379` | a cluster; any of its nodes are enough |

`rediss` instead of `redis` is TLS. A login before the hosts and a query with options of redis-py go everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, Field
from redis.connection import parse_url

Address = tuple[str, int]
Kind = Literal["server", "sentinel", "cluster"]

_SENTINEL_PORT = 26379
_SERVER_PORT = 6379


@dataclass(frozen=True, slots=True)
class Place:
    """A URL's parts."""

    kind: Kind
    options: Mapping[str, Any]
    """Options of redis-py for every connection to a server."""
    addresses: tuple[Address, ...] = ()
    """Of sentinels or of nodes of the cluster."""
    service: str = ""
    """What the sentinels call the primary."""

    def __str__(self) -> str:
        """The URL without login and options; equal where the place is the same."""
        database = self.options.get("db", 0)
        if self.kind == "server":
            at = self.options.get("path") or f"{self.options.get('host')}:{self.options.get('port', _SERVER_PORT)}"
            return f"redis {at}/{database}"
        hosts = ",".join(sorted(f"{host}:{port}" for host, port in self.addresses))
        return f"redis {self.kind} {hosts}/{self.service}/{database}"


def parse(url: str) -> Place:
    """The parts of a URL.

    Raises:
        ValueError: it is none of those above.
    """
    scheme = urlsplit(url).scheme
    transport, _, kind = scheme.partition("+")
    if not kind:
        return Place("server", parse_url(url))
    parts = urlsplit(url)
    login, _, hosts = parts.netloc.rpartition("@")
    path = [unquote(step) for step in parts.path.split("/")[1:]]
    match kind, path:
        case "sentinel", [service] if service:
            return _place("sentinel", f"{transport}://{login}@/0?{parts.query}", hosts, service)
        case "sentinel", [service, db] if service and db.isdecimal():
            return _place("sentinel", f"{transport}://{login}@/{db}?{parts.query}", hosts, service)
        case "cluster", [] | [""] | ["0"]:
            return _place("cluster", f"{transport}://{login}@/0?{parts.query}", hosts)
        case _:
            raise ValueError(scheme)


def _place(kind: Kind, url: str, hosts: str, service: str = "") -> Place:
    port = _SENTINEL_PORT if kind == "sentinel" else _SERVER_PORT
    return Place(kind, parse_url(url), tuple(_address(host, port) for host in hosts.split(",")), service)


def _address(text: str, default_port: int) -> Address:
    parts = urlsplit(f"//{text}")
    if not parts.hostname or "@" in text:
        raise ValueError("a host")
    return parts.hostname, parts.port or default_port


def _redis_url(url: str) -> str:
    try:
        parse(url)
    except ValueError:
        # The text of what went wrong would quote the URL, and with it the password.
        raise ValueError(
            "a Redis URL: redis://host:port/db, redis+sentinel://host:port,host:port/service/db, "
            "redis+cluster://host:port,host:port (each with rediss for TLS) or unix://path"
        ) from None
    return url


def _no_cluster(url: str) -> str:
    if parse(url).kind == "cluster":
        raise ValueError("one server or sentinels: Sidekiq does not work on a Redis Cluster")
    return url


RedisUrl = Annotated[str, AfterValidator(_redis_url), Field(repr=False)]
SidekiqUrl = Annotated[str, AfterValidator(_redis_url), AfterValidator(_no_cluster), Field(repr=False)]
