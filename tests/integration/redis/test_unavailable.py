"""Streams and servers that are unavailable, as operators see them.

The same could happen with any sink that has one destination, and with any broker that comes back while nothing waits.
"""

from __future__ import annotations

from typing import Any

import redis

from tests.harness.outbox import Outbox
from tests.redis_sinks import payloads
from tests.servers.base import LOCALHOST, free_port, wait_until
from tests.servers.proxy import FaultProxy


def circuits(outbox: Outbox) -> Any:
    return outbox.sql("select circuits from relay.relays")[0][0]


def test_the_only_stream_of_a_wrong_type_opens_the_circuit(
    outbox: Outbox, redis_url: str, redis_client: redis.Redis
) -> None:
    redis_client.set("main", "no stream")
    outbox.configure({"main": {"type": "redis-stream", "url": redis_url}})
    with outbox.relay():
        outbox.insert(50)
        wait_until(lambda: "WRONGTYPE" in circuits(outbox).get("main", ""))
        check = outbox.run_relay("status", "--check")
        assert check.returncode == 3
        assert 'destination "main" is unavailable' in check.stderr
        assert outbox.count("run_at is null") == 50, "nothing is parked"
        redis_client.delete("main")
        outbox.wait_until_empty(timeout=15)
        wait_until(lambda: circuits(outbox) == {})
        assert outbox.count(table="destinations") == 0
    assert len(payloads(redis_client, "main")) == 50


def test_a_server_that_is_back_closes_the_circuit_though_nothing_waits(outbox: Outbox, redis_url: str) -> None:
    with FaultProxy.before(redis_url) as proxy:
        port = int(redis_url.rpartition(":")[2].partition("/")[0])
        outbox.configure({"main": {"type": "redis-stream", "url": proxy.url(redis_url)}})
        proxy.move(LOCALHOST, free_port())
        with outbox.relay():
            outbox.insert(1)
            wait_until(lambda: "main" in circuits(outbox))
            wait_until(lambda: outbox.count(table="claims") == 0)
            outbox.sql("delete from relay.outbox")
            proxy.move(LOCALHOST, port)
            wait_until(lambda: circuits(outbox) == {}, timeout=15)
