"""What the server refuses: which outcome it becomes, and that nothing is lost or sent twice by it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from sinks.base import DELIVERED, Hold, Reject, Sink, SinkConfig, SinkUnavailable
from sinks.redis.sidekiq_job import QUEUE_NAMES
from sinks.redis.stream import NAMES, RedisStreamOptions, RedisStreamSink
from sinks.testing import batch, message
from tests.redis_sinks import jobs, marks, payloads, sidekiq, streams
from tests.servers.base import LOCALHOST, free_port, port_open, run_server, wait_until
from tests.servers.proxy import FaultProxy
from tests.servers.redis import DEFAULT_VERSION, SLOTS, VERSIONS, RedisServer, find_redis, run_redis, run_redis_cluster

REDIS_70 = "redis:7.0"


every_version = [
    pytest.param(version, marks=[] if version == DEFAULT_VERSION else pytest.mark.full) for version in VERSIONS
]


@pytest.fixture(params=every_version)
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """A server of the test's own, to be put into any state."""
    with run_redis(request.param) as server:
        yield server


@pytest.fixture
def client(server: RedisServer) -> Iterator[redis.Redis]:
    with server.client() as client:
        yield client


@contextmanager
def run_unready(*options: str) -> Iterator[str]:
    """The URL of a server that listens, but does not serve yet."""
    port = free_port()
    argv = [*find_redis(DEFAULT_VERSION), "--port", str(port), "--bind", LOCALHOST, *options]
    with run_server(argv, ready=lambda: port_open(port), name="redis"):
        yield f"redis://{LOCALHOST}:{port}/0"


def unopened(url: str) -> Sink:
    return RedisStreamSink(SinkConfig("orders", RedisStreamOptions(url=url)))


def refusal(sink: Sink) -> str:
    """Why the sink could not send, where it knows that nothing was sent."""
    with pytest.raises(SinkUnavailable) as caught:
        sink.send(batch([message(99)]))
    assert not caught.value.unknown
    return caught.value.reason


def test_out_of_memory_refuses_all_before_anything_is_pushed(server: RedisServer, client: redis.Redis) -> None:
    answered, settled, claim = (batch([message(number)]) for number in (1, 2, 3))
    with sidekiq(server.url) as sink:
        sink.send(answered)
        sink.send(settled)
        client.config_set("maxmemory", 1)
        again = batch(claim.messages, token=claim.token, settled=(settled.token,))
        with pytest.raises(SinkUnavailable, match="OOM") as caught:
            sink.send(again)
        assert not caught.value.unknown
        assert set(marks(client)) == {answered.token.hex, settled.token.hex}
        assert list(sink.send(answered)) == [DELIVERED]
        client.config_set("maxmemory", 0)
        assert list(sink.send(again)) == [DELIVERED]
    assert set(marks(client)) == {answered.token.hex, claim.token.hex}
    assert [job["args"][0] for job in jobs(client)] == [1, 2, 3]


def test_out_of_memory_while_an_earlier_claim_is_looked_at(server: RedisServer, client: redis.Redis) -> None:
    silent = batch([message(1)])
    claim = batch([one._replace(prior_tokens=(silent.token,)) for one in silent.messages])
    with sidekiq(server.url) as sink:
        client.config_set("maxmemory", 1)
        with pytest.raises(SinkUnavailable, match="OOM"):
            sink.send(claim)
        assert marks(client) == {}
        client.config_set("maxmemory", 0)
        assert list(sink.send(claim)) == [DELIVERED]
    assert len(jobs(client)) == 1


def test_demoted_primary_is_left_for_the_one_at_the_same_address(server: RedisServer, client: redis.Redis) -> None:
    with run_redis() as other, other.client() as promoted, FaultProxy.before(server.url) as proxy:
        with streams(proxy.url(server.url)) as sink:
            assert list(sink.send(batch([message(1)]))) == [DELIVERED]
            client.execute_command("REPLICAOF", LOCALHOST, other.port)
            proxy.move(LOCALHOST, other.port)
            assert "READONLY" in refusal(sink)
            assert list(sink.send(batch([message(2)]))) == [DELIVERED]
        assert len(payloads(promoted)) == 1


def test_login_that_is_asked_for_or_wrong(server: RedisServer, client: redis.Redis) -> None:
    with streams(server.url) as sink:
        client.config_set("requirepass", "secret")
        sink.close()
        assert "NOAUTH" in refusal(sink)
    with pytest.raises(SinkUnavailable, match="password") as caught:
        with streams(f"redis://:not-it@{LOCALHOST}:{server.port}/0"):
            pass
    assert not caught.value.unknown
    assert "not-it" not in caught.value.reason
    with streams(f"redis://:secret@{LOCALHOST}:{server.port}/0") as sink:
        assert list(sink.send(batch([message(1)]))) == [DELIVERED]


def test_denied_queue_holds_its_own_messages_only(server: RedisServer, client: redis.Redis) -> None:
    keys = ["outbox-relay:mark:*", "queues", "queue:fine"]
    client.acl_setuser("relay", enabled=True, nopass=True, keys=keys, commands=["+@all"])
    with sidekiq(f"redis://relay:any@{LOCALHOST}:{server.port}/0") as sink:
        messages = [message(1, headers={"queue": "fine"}), message(2, headers={"queue": "denied"})]
        outcomes = sink.send(batch(messages))
    assert outcomes[0] == DELIVERED
    assert isinstance(outcomes[1], Hold)
    assert outcomes[1].destination == "queue:denied"
    assert len(jobs(client, "fine")) == 1


@pytest.mark.parametrize("denied", ["evalsha", "get", "set"])
def test_denied_command_refuses_all(server: RedisServer, client: redis.Redis, denied: str) -> None:
    client.acl_setuser("relay", enabled=True, nopass=True, keys=["*"], commands=["+@all", f"-{denied}"], reset=True)
    with streams(f"redis://relay:any@{LOCALHOST}:{server.port}/0") as sink:
        refusal(sink)
    assert payloads(client) == []


def test_missing_script_support_refuses_all() -> None:
    with run_redis(DEFAULT_VERSION, "--rename-command", "EVALSHA", "''") as server, streams(server.url) as sink:
        assert "unknown command" in refusal(sink)


def test_server_busy_with_another_script(server: RedisServer, client: redis.Redis) -> None:
    client.config_set("lua-time-limit", 20)

    def loop() -> None:
        with server.client() as other, pytest.raises(redis.ResponseError):
            other.eval("while true do end", 0)

    with streams(server.url) as sink:
        thread = threading.Thread(target=loop)
        thread.start()
        try:
            wait_until(lambda: _busy(client), what="the server being busy")
            assert "BUSY" in refusal(sink)
        finally:
            client.script_kill()
            thread.join()
        assert list(sink.send(batch([message(1)]))) == [DELIVERED]


def _busy(client: redis.Redis) -> bool:
    try:
        client.ping()
    except redis.ResponseError as error:
        return "BUSY" in str(error)
    return False


def test_disk_that_cannot_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    with run_redis(DEFAULT_VERSION, folder=folder) as server, server.client() as client, streams(server.url) as sink:
        client.config_set("save", "3600 1")
        folder.rmdir()
        client.bgsave()
        wait_until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err", what="a failed save")
        assert "MISCONF" in refusal(sink)
        client.config_set("save", "")  # or it would try to save when it stops


@pytest.mark.full
def test_too_few_replicas() -> None:
    # Redis 6.2 does not ask for replicas inside scripts.
    with run_redis(REDIS_70, "--min-replicas-to-write", "1") as server, streams(server.url) as sink:
        assert "NOREPLICAS" in refusal(sink)


def test_cluster_without_its_slots() -> None:
    with run_redis_cluster(nodes=1) as (node,), node.client() as client, streams(node.cluster_url) as sink:
        assert list(sink.send(batch([message(1)]))) == [DELIVERED]
        client.execute_command("CLUSTER", "DELSLOTS", *range(SLOTS))
        assert "CLUSTERDOWN" in refusal(sink)


def test_replica_without_its_primary() -> None:
    with run_unready("--replicaof", LOCALHOST, str(free_port()), "--replica-serve-stale-data", "no") as url:
        assert "MASTERDOWN" in refusal(unopened(url))


def test_server_that_is_loading(tmp_path: Path) -> None:
    with run_redis(DEFAULT_VERSION, folder=tmp_path) as server, server.client() as client:
        client.config_set("rdbcompression", "no")
        client.execute_command("DEBUG", "POPULATE", 20_000, "key", 1000)
        client.save()
    # A second or two of loading, in which it answers after every 2 MB that it has read.
    with run_unready("--key-load-delay", "50", "--dir", str(tmp_path)) as url:
        assert "LOADING" in refusal(unopened(url))
        with pytest.raises(SinkUnavailable, match="LOADING"), streams(url):
            pass
        wait_until(lambda: _sends(url), timeout=30, what="the server having loaded")


def _sends(url: str) -> bool:
    with streams(url) as sink:
        return list(sink.send(batch([message(1)]))) == [DELIVERED]


@pytest.mark.parametrize(
    "name", ["schedule", "queue:x", "queues", "retry", "stat:failed", "outbox-relay:mark:1", "a\nb"]
)
def test_stream_named_by_data_takes_nobody_s_place(redis_url: str, redis_client: redis.Redis, name: str) -> None:
    """Sidekiq's commands would fail on a stream. The same way could go: our own marks, names that no tool can show."""
    with streams(redis_url) as sink:
        outcomes = sink.send(batch([message(1, headers={"to": name}), message(2)]))
    assert outcomes[0] == Reject(f'"{{header.to:orders}}" gives a name that is refused; expected {NAMES}')
    assert outcomes[1] == DELIVERED
    found: Any = redis_client.keys("*")
    assert len(found) == 2, "the other message and the mark"


@pytest.mark.parametrize("name", ["a/b", "a b", "a\n", "ä", "low?x"])
@pytest.mark.parametrize("header", [lambda name: {"queue": name}, lambda name: {"sidekiq": {"queue": name}}])
def test_queue_named_by_data_has_a_page(
    redis_url: str, redis_client: redis.Redis, name: str, header: Callable[[str], dict[str, Any]]
) -> None:
    with sidekiq(redis_url) as sink:
        outcomes = sink.send(batch([message(1, headers=header(name)), message(2)]))
    assert isinstance(outcomes[0], Reject)
    assert QUEUE_NAMES in outcomes[0].reason
    assert redis_client.smembers("queues") == {b"default"}
