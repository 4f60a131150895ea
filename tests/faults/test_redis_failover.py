"""Redis fails over while relays push: what was settled is in the server that is left."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
import redis

from tests.harness.outbox import Outbox
from tests.redis_sinks import jobs, payloads
from tests.servers.base import LOCALHOST, wait_until
from tests.servers.redis import RedisServer, Sentinel, run_redis_cluster, run_redis_sentinel

KEYS = 20


class Writer:
    """Writes numbered messages, five in a transaction, until told to stop."""

    def __init__(self, url: str) -> None:
        self.written = 0
        self._url = url
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        statement = "insert into relay.outbox (kind, key, payload) values ('made', %s, %s)"
        with psycopg.connect(self._url, autocommit=True) as conn:
            while not self._stop.wait(0.01):
                rows = [(str(n % KEYS), json.dumps([n])) for n in range(self.written, self.written + 5)]
                with conn.transaction():
                    conn.cursor().executemany(statement, rows)
                self.written += 5

    @contextmanager
    def writing(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()


def stream(server: RedisServer) -> list[int]:
    with server.client() as client:
        return [json.loads(payload)[0] for payload in payloads(client, "events")]


def queue(server: RedisServer) -> list[int]:
    with server.client() as client:
        return [job["args"][0] for job in jobs(client)]


def assert_all_once_in_order(found: list[int], written: int) -> None:
    assert sorted(found) == list(range(written))
    of_keys = {key: [number for number in found if number % KEYS == key] for key in range(KEYS)}
    assert all(numbers == sorted(numbers) for numbers in of_keys.values())


@pytest.mark.parametrize(
    ("how", "version", "replicas"),
    [
        ("planned twice", "redis:6.2", 1),
        pytest.param("planned", "redis:7.0", 2, marks=pytest.mark.full),
        ("partition", "redis:6.2", 2),
    ],
)
def test_sentinels_replace_a_primary_that_goes_on_serving(
    outbox: Outbox, how: str, version: str, replicas: int
) -> None:
    """It acknowledges what the resynchronization will wipe. With the default settings nothing is settled by it.

    In the same way could go: a replica confirms that is not the one to be promoted (so all that could be must confirm),
    sentinels of the wrong side vouch for the old primary, a second fail-over promotes it again before it was demoted, a
    name in DNS moves, a node of a cluster is demoted.
    """
    with run_redis_sentinel(version, replicas=replicas) as group:
        at = {"url": group.url, "send_timeout": "2s", "lease": "10s"}
        outbox.configure(
            {"events": {"type": "redis-stream", "order": "key", "shards": 4, **at}, "jobs": {"type": "sidekiq", **at}},
            routes=[{"kind": "*", "sink": "events"}, {"kind": "*", "sink": "jobs"}],
        )
        writer = Writer(outbox.url)
        with outbox.relay() as relay:
            with writer.writing():
                wait_until(lambda: len(stream(group.primary)) > 100, what="the first messages")
                if how.startswith("planned"):
                    group.fail_over()
                    if how == "planned twice":
                        wait_until(lambda: fails_over(group), timeout=30, what="the second fail-over")
                else:
                    group.part()
                    wait_until(lambda: group.current() != group.primary, timeout=20, what="another primary")
                new, before = group.current(), writer.written
                wait_until(lambda: max(stream(new)) > before, timeout=30, what="it being pushed to")
                group.heal()
                wait_until(lambda: primaries(group) == [new], timeout=30, what="the demotion")
            outbox.wait_until_empty(timeout=30)
            assert new == group.primary or "redis_primary" in relay.server.log.read_text()
        assert_all_once_in_order(stream(new), writer.written)
        assert sorted(queue(new)) == list(range(writer.written))


@pytest.mark.parametrize(
    ("how", "version", "rounds"),
    [
        pytest.param("", "redis:7.0", 1, marks=pytest.mark.full),
        ("FORCE", "redis:6.2", 1),
        ("TAKEOVER", "redis:6.2", 4),
    ],
)
def test_cluster_replaces_a_primary_that_goes_on_serving(outbox: Outbox, how: str, version: str, rounds: int) -> None:
    """The old one stops only once it hears of it; there and back again, before all nodes know who replicates whom."""
    with run_redis_cluster(version, replicas=1) as nodes:
        url = "redis+cluster://" + ",".join(f"{LOCALHOST}:{node.port}" for node in nodes)
        outbox.configure({"events": {"type": "redis-stream", "url": url, "order": "key", "shards": 4}})
        owner, replica = next((node, replica) for node, replica in pairs(nodes) if serves(node, "events"))
        writer = Writer(outbox.url)
        with outbox.relay():
            with writer.writing():
                wait_until(lambda: len(stream(owner)) > 100, what="the first messages")
                for _ in range(rounds):
                    take_over(replica, how)
                    owner, replica, before = replica, owner, writer.written
                    wait_until(lambda: max(stream(owner)) > before, timeout=30, what="it being pushed to")  # noqa: B023
            outbox.wait_until_empty(timeout=30)
        assert_all_once_in_order(stream(owner), writer.written)


def take_over(replica: RedisServer, how: str) -> None:
    """Let it become the primary, once it has what the primary has."""
    with replica.client() as client:
        wait_until(lambda: client.info("replication").get("master_link_status") == "up", timeout=20, what="the link")
        client.execute_command("CLUSTER FAILOVER", *how.split())
        wait_until(lambda: client.info("replication")["role"] == "master", timeout=20, what="the promotion")


def fails_over(group: Sentinel) -> bool:
    try:
        group.fail_over()
    except redis.ResponseError:  # they are not done with the one before
        return False
    return True


def primaries(group: Sentinel) -> list[RedisServer]:
    found = []
    for server in (group.primary, *group.replicas):
        with server.client() as client:
            if client.info("replication")["role"] == "master":
                found.append(server)
    return found


def pairs(nodes: list[RedisServer]) -> list[tuple[RedisServer, RedisServer]]:
    """Each primary with its replica."""
    half = len(nodes) // 2
    return list(zip(nodes[:half], nodes[half:], strict=True))


def serves(node: RedisServer, stream: str) -> bool:
    with node.client() as client:
        try:
            client.exists(stream)
        except redis.ResponseError:
            return False
        return True
