"""The tests' own Redis and Valkey: every version, cluster, Sentinel."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis
from redis.cluster import RedisCluster
from redis.sentinel import Sentinel as SentinelClient

from tests.servers.base import LOCALHOST, wait_until
from tests.servers.redis import every_redis, run_redis, run_redis_cluster, run_redis_sentinel


@every_redis
def test_a_version_can_be_asked_for(redis_client: redis.Redis, request: pytest.FixtureRequest) -> None:
    name, _, number = request.node.callspec.params["redis_url"].partition(":")
    info = redis_client.info("server")
    assert str(info.get(f"{name}_version")).startswith(f"{number}.")


@pytest.mark.parametrize("_time", range(2))
def test_each_test_finds_it_empty(redis_client: redis.Redis, _time: int) -> None:
    assert redis_client.dbsize() == 0
    redis_client.set("left", "behind")


def test_a_server_can_be_started_again_on_its_port_and_its_data(tmp_path: Path) -> None:
    with run_redis("redis:6.2", "--appendonly", "yes", folder=tmp_path) as server, server.client() as client:
        client.set("kept", 1)
    with run_redis("redis:6.2", "--appendonly", "yes", folder=tmp_path, port=server.port) as again:
        with again.client() as client:
            assert client.get("kept") == b"1"


def test_a_server_that_asks_for_a_password_counts_as_ready() -> None:
    with run_redis("redis:6.2", "--requirepass", "secret") as server:
        with server.client() as client, pytest.raises(redis.AuthenticationError):
            client.ping()


def test_a_cluster_serves_every_slot() -> None:
    with run_redis_cluster() as servers:
        with RedisCluster(host=LOCALHOST, port=servers[0].port) as client:
            for number in range(100):
                client.set(f"key:{number}", number)
        held = []
        for server in servers:
            with server.client() as client_of_one:
                held.append(client_of_one.dbsize())
        assert sum(held) == 100
        assert all(held)


@pytest.mark.full
def test_sentinels_promote_the_replica_when_the_primary_dies() -> None:
    with run_redis_sentinel() as group:
        group.primary.server.kill()
        finder = SentinelClient([(LOCALHOST, watcher.port) for watcher in group.sentinels])
        try:
            wait_until(
                lambda: finder.discover_master(group.name)[1] == group.replica.port,
                timeout=30,
                what="the replica being promoted",
            )
        finally:
            for client in finder.sentinels:
                client.close()
