"""Redis that cannot write: a demoted primary, one that loads its data, one that is full, a slot that moves.

No message's attempts are used up by it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sinks.redis.cluster import slot_of
from tests.harness.outbox import Outbox, Relay
from tests.redis_clusters import run_cluster
from tests.redis_sinks import jobs, payloads
from tests.servers.base import LOCALHOST, port_open, run_server, wait_until
from tests.servers.proxy import FaultProxy
from tests.servers.redis import DEFAULT_VERSION, find_redis, run_redis

ONE_ATTEMPT: dict[str, Any] = {"max_attempts": 1}
"""A message whose attempt counted would be dead."""
RESUMES_S = 5.0


def reasons(relay: Relay) -> str:
    return " ".join(event["reason"] for event in relay.events("sink is unwell"))


def test_demoted_primary_keeps_its_sockets_open(outbox: Outbox) -> None:
    with run_redis() as first, run_redis(DEFAULT_VERSION, "--replicaof", LOCALHOST, str(first.port)) as second:
        with first.client() as old, second.client() as new, FaultProxy.before(first.url) as proxy:
            outbox.configure({"main": {"type": "redis-stream", "url": proxy.url(first.url), **ONE_ATTEMPT}})
            with outbox.relay() as relay:
                outbox.insert(100)
                outbox.wait_until_empty()
                wait_until(lambda: len(payloads(new, "main")) == 100, what="the replica having caught up")
                new.execute_command("REPLICAOF", "NO", "ONE")
                old.execute_command("REPLICAOF", LOCALHOST, second.port)
                outbox.insert(100)
                wait_until(lambda: "READONLY" in reasons(relay), what="the refusal")
                proxy.move(LOCALHOST, second.port)
                outbox.wait_until_empty(timeout=RESUMES_S)
            assert len(payloads(new, "main")) == 200
    assert outbox.count(table="dead") == 0


def test_restarted_server_loads_its_data_first(outbox: Outbox, tmp_path: Path) -> None:
    folder = tmp_path / "redis"
    folder.mkdir()
    with run_redis(DEFAULT_VERSION, folder=folder) as server, server.client() as client:
        client.config_set("rdbcompression", "no")
        client.execute_command("DEBUG", "POPULATE", 20_000, "key", 1000)
        outbox.configure({"main": {"type": "redis-stream", "url": server.url, **ONE_ATTEMPT}})
        with outbox.relay():
            outbox.insert(100)
            outbox.wait_until_empty()
            client.save()
            server.server.kill()
            outbox.insert(100)
            options = ["--port", str(server.port), "--bind", LOCALHOST, "--dir", str(folder), "--key-load-delay", "50"]
            argv = [*find_redis(DEFAULT_VERSION), *options]
            with run_server(argv, ready=lambda: port_open(server.port), name="redis"), server.client() as restarted:
                assert restarted.info("persistence")["loading"]
                wait_until(lambda: not restarted.info("persistence")["loading"], timeout=30, what="all being loaded")
                outbox.wait_until_empty(timeout=RESUMES_S)
                assert len(payloads(restarted, "main")) == 200
    assert outbox.count(table="dead") == 0


def test_full_server(outbox: Outbox) -> None:
    with run_redis(DEFAULT_VERSION) as server, server.client() as client:
        outbox.configure({"main": {"type": "sidekiq", "url": server.url, **ONE_ATTEMPT}})
        with outbox.relay() as relay:
            outbox.insert(100)
            outbox.wait_until_empty()
            client.config_set("maxmemory", "100kb")
            outbox.insert(100)
            wait_until(lambda: "OOM command not allowed" in reasons(relay), what="the refusal")
            client.config_set("maxmemory", 0)
            outbox.wait_until_empty(timeout=RESUMES_S)
        assert len(jobs(client)) == 200
    assert outbox.count(table="dead") == 0


def test_warning_where_the_server_may_forget(outbox: Outbox) -> None:
    with run_redis(DEFAULT_VERSION, "--maxmemory", "5mb", "--maxmemory-policy", "allkeys-lru") as server:
        outbox.configure({"main": {"type": "sidekiq", "url": server.url}})
        with outbox.relay() as relay:
            outbox.insert()
            outbox.wait_until_empty()
            assert "policy=allkeys-lru" in relay.server.log.read_text()


def test_slot_that_moves_while_it_is_used(outbox: Outbox) -> None:
    with run_cluster() as cluster:
        names = [cluster.stream(node) for node in (0, 1, 2)]
        sink = {"type": "redis-stream", "url": cluster.url, "stream": "{kind}", "batch_messages": 1000, **ONE_ATTEMPT}
        outbox.configure({"main": sink})
        with outbox.relay():
            for name in names:
                outbox.insert(200, kind=name)
            wait_until(lambda: cluster.payloads(names[0]), what="the first messages")
            for number, (source, target) in enumerate([(0, 1), (1, 2)], 1):
                cluster.begin_to_move(slot_of(names[0]), source, target)
                for name in names:
                    outbox.insert(100, kind=name)
                going_on = [200 + 100 * number] * 2
                wait_until(
                    lambda: [len(cluster.payloads(name)) for name in names[1:]] == going_on,  # noqa: B023
                    timeout=20,
                    what="the other streams going on",
                )
                cluster.end_to_move(slot_of(names[0]), source, target)
            outbox.wait_until_empty(timeout=30)
        assert [len(cluster.payloads(name)) for name in names] == [400] * 3
    assert outbox.count(table="dead") == 0
