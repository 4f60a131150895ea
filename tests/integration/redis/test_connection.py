"""The connection: what is known after a failure, options of the client, warnings at the start."""

from __future__ import annotations

import logging
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import redis

from sinks.base import DELIVERED, SinkConfig, SinkUnavailable
from sinks.redis import server as redis_server
from sinks.redis.server import warn_of_eviction
from sinks.redis.stream import RedisStreamOptions, RedisStreamSink
from sinks.testing import batch, message
from tests.redis_sinks import jobs, names, payloads, sidekiq, streams
from tests.servers.base import LOCALHOST, free_port, wait_until
from tests.servers.proxy import Direction, FaultProxy
from tests.servers.redis import run_redis


def test_refused_connection_is_known() -> None:
    sink = RedisStreamSink(SinkConfig("orders", RedisStreamOptions(url=f"redis://{LOCALHOST}:{free_port()}/0")))
    for act in (sink.open, lambda: sink.send(batch([message(1)]))):
        with pytest.raises(SinkUnavailable, match="refused") as caught:
            act()
        assert not caught.value.unknown


def test_handshake_without_answer_is_known(redis_url: str, redis_client: redis.Redis) -> None:
    with FaultProxy.before(redis_url) as proxy, streams(proxy.url(redis_url), timeout=0.3) as sink:
        sink.close()
        proxy.stall()
        began = time.monotonic()
        with pytest.raises(SinkUnavailable) as caught:
            sink.send(batch([message(1)]))
        assert not caught.value.unknown
        assert time.monotonic() - began < 4
    assert payloads(redis_client) == []


@pytest.mark.parametrize("direction", list(Direction))
def test_request_without_answer_is_unknown_and_asked_again(
    redis_url: str, redis_client: redis.Redis, direction: Direction
) -> None:
    claim = batch([message(1), message(2)])
    with FaultProxy.before(redis_url) as proxy, sidekiq(proxy.url(redis_url), timeout=0.3) as sink:
        proxy.stall(direction)
        began = time.monotonic()
        with pytest.raises(SinkUnavailable) as caught:
            sink.send(claim)
        assert caught.value.unknown
        assert time.monotonic() - began < 4
        proxy.resume()
        assert list(sink.send(claim)) == [DELIVERED] * 2
    assert len(jobs(redis_client)) == 2


def test_connection_that_the_server_closed_meanwhile_costs_nothing(redis_url: str, redis_client: redis.Redis) -> None:
    with streams(redis_url) as sink:
        sink.send(batch([message(1)]))
        redis_client.client_kill_filter(_type="normal", skipme=True)
        assert list(sink.send(batch([message(2)]))) == [DELIVERED]


def test_too_large_message_is_rejected_before_it_breaks_the_connection() -> None:
    with run_redis() as server, server.client() as client:
        client.config_set("proto-max-bulk-len", 2**20)
        large = b'["' + b"x" * 2**20 + b'"]'
        messages = [message(1), message(2, payload=large), message(3, headers={"note": "x" * (2**20 + 1)})]
        with sidekiq(server.url) as jobs_sink, streams(server.url) as sink:
            assert names(jobs_sink.send(batch(messages))) == ["Delivered", "Reject", "Delivered"]
            outcomes = sink.send(batch(messages))
        assert names(outcomes) == ["Delivered", "Reject", "Reject"]
        assert f"{len(large)} bytes" in repr(outcomes[1])
        assert str(2**20) in repr(outcomes[1])
        assert len(payloads(client)) == 1


def test_client_options_reach_the_library(redis_url: str, redis_client: redis.Redis) -> None:
    config = SinkConfig("orders", RedisStreamOptions(url=redis_url), client={"client_name": "relay-orders"})
    sink = RedisStreamSink(config)
    sink.open()
    assert "relay-orders" in {client["name"] for client in redis_client.client_list()}
    sink.close()


def test_unknown_client_option_is_named_and_the_password_is_not() -> None:
    options = RedisStreamOptions(url="redis://:hidden@localhost/0")
    with pytest.raises(ValueError, match="no_such_option") as caught:
        RedisStreamSink(SinkConfig("orders", options, client={"no_such_option": 1}))
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("policy", "level", "text"),
    [
        ("allkeys-lru", logging.WARNING, "delivered messages may be dropped"),
        ("volatile-ttl", logging.WARNING, "marks"),
        ("noeviction", None, ""),
    ],
)
def test_warning_where_the_server_may_evict(
    caplog: pytest.LogCaptureFixture, policy: str, level: int | None, text: str
) -> None:
    warn_of_eviction.cache_clear()
    with run_redis("redis:6.2", "--maxmemory", "100mb", "--maxmemory-policy", policy) as server:
        with caplog.at_level(logging.INFO, "sinks.redis"):
            for _ in range(2):
                with streams(server.url):
                    pass
    assert [(record.levelno, policy in record.getMessage()) for record in caplog.records] == (
        [] if level is None else [(level, True)]
    )
    assert text in caplog.text


def test_hidden_eviction_policy_is_unknown(
    redis_url: str, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_eviction.cache_clear()
    redis_client.acl_setuser("managed", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-info", "-config"])
    url = redis_url.replace("redis://", "redis://managed:any@")
    with caplog.at_level(logging.INFO, "sinks.redis"), streams(url) as sink:
        assert list(sink.send(batch([message(1)]))) == [DELIVERED]
    assert [record.levelno for record in caplog.records] == [logging.INFO]
    assert "policy=unknown" in caplog.text
    redis_client.acl_deluser("managed")


def test_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    with run_redis("redis:6.2", "--unixsocket", str(path)) as server, server.client() as client:
        with streams(f"unix://{path}") as sink:
            assert list(sink.send(batch([message(1)]))) == [DELIVERED]
        assert len(payloads(client)) == 1


def test_name_that_leads_elsewhere_now_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fail-over behind a name leaves the old server alive. A resolver without an answer changes nothing."""
    lookup = socket.getaddrinfo
    leads_to: list[str | None] = ["127.0.0.1"]

    def resolver(host: str, *arguments: Any, **options: Any) -> Any:
        if host != "primary.test":
            return lookup(host, *arguments, **options)
        if leads_to[0] is None:
            raise socket.gaierror("no answer")
        return lookup(leads_to[0], *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    monkeypatch.setattr(redis_server, "LOOK_UP_S", 0.0)
    port = free_port()
    with run_redis(port=port) as old, run_redis("redis:6.2", "--bind", "127.0.0.2", port=port), old.client() as client:
        with streams(f"redis://primary.test:{port}/0") as sink, redis.Redis("127.0.0.2", port) as new:

            def reaches_new() -> bool:
                assert list(sink.send(batch([message(1)]))) == [DELIVERED]
                return bool(payloads(new))

            for address in ("127.0.0.1", None):
                leads_to[0] = address
                for _ in range(3):
                    assert not reaches_new()
                    wait_until(lambda: not _looks_up(), what="the look-up being over")
            leads_to[0] = "127.0.0.2"
            wait_until(reaches_new, what="the other server being used")
            count = len(payloads(client))
            assert reaches_new()
        assert len(payloads(client)) == count


def _looks_up() -> bool:
    return any(thread.name == "redis-name" for thread in threading.enumerate())
