"""Sentinels: who is the primary, and when a batch is safe from its fail-over."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from sinks.base import DELIVERED, Batch, Outcome, SinkUnavailable
from sinks.redis.stream import RedisStreamSink
from sinks.testing import batch, message
from tests.redis_sinks import payloads, streams
from tests.servers.base import LOCALHOST, free_port, port_open, run_server, wait_until
from tests.servers.redis import Sentinel, find_redis, run_redis, run_redis_sentinel
from tests.servers.sqs_stub import certificate


@pytest.fixture
def group() -> Iterator[Sentinel]:
    with run_redis_sentinel() as group:
        yield group


def sends(sink: RedisStreamSink, number: int) -> bool:
    """Whether it gets a message through."""
    with suppress(SinkUnavailable):
        return list(sink.send(batch([message(number)]))) == [DELIVERED]
    return False


@pytest.mark.full
def test_sentinels_name_the_next_primary_when_one_dies(group: Sentinel) -> None:
    # The first one of them does not answer.
    with streams(group.url.replace("@", f"@{LOCALHOST}:{free_port()},")) as sink, group.replica.client() as promoted:
        assert sends(sink, 1)
        wait_until(lambda: len(payloads(promoted)) == 1, what="the replica having the message")
        group.primary.server.kill()
        with pytest.raises(SinkUnavailable):
            sink.send(batch([message(2)]))
        wait_until(lambda: sends(sink, 2), timeout=20, what="the next primary")
        assert [payload[1:2] for payload in payloads(promoted)] == [b"1", b"2"]


@pytest.mark.full
def test_primary_that_was_demoted_is_left(group: Sentinel) -> None:
    with streams(group.url) as sink, group.replica.client() as promoted:
        assert sends(sink, 1)
        with group.sentinels[0].client() as client:
            client.execute_command("SENTINEL FAILOVER", group.name)
        wait_until(lambda: promoted.info("replication")["role"] == "master", timeout=20, what="the new primary")
        with group.primary.client() as client:
            wait_until(lambda: client.info("replication")["role"] == "slave", timeout=20, what="the demotion")
        began = time.monotonic()
        wait_until(lambda: sends(sink, 2), timeout=20, what="a message getting through")
        assert time.monotonic() - began < 15
        assert len(payloads(promoted)) == 2


@pytest.mark.full
def test_service_that_no_sentinel_knows(group: Sentinel) -> None:
    with pytest.raises(SinkUnavailable, match=r"0 of 3 sentinels vouch.*other.*No such") as caught:
        with streams(group.url.replace(f"/{group.name}/", "/other/")):
            pass
    assert not caught.value.unknown


def test_silent_sentinels_leave_no_send_hanging() -> None:
    with run_redis("redis:6.2") as server:
        hosts = ",".join([f"{LOCALHOST}:{server.port}"] * 3)
        server.server.freeze()
        began = time.monotonic()
        with pytest.raises(SinkUnavailable, match=r"0 of 3 sentinels.*Timeout"):
            with streams(f"redis+sentinel://{hosts}/primary", timeout=2.0):
                pass
        assert time.monotonic() - began < 5
        server.server.thaw()


def test_too_few_sentinels_vouch_for_nobody(group: Sentinel) -> None:
    """Those that answer may be on the wrong side of a partition, whatever the replicas confirm."""
    with streams(group.url, wait_replicas=0) as sink:
        assert sends(sink, 1)
        group.sentinels[0].server.kill()
        wait_until(lambda: sends(sink, 2), what="two of three being enough")
        group.sentinels[1].server.freeze()
        wait_until(lambda: not sends(sink, 3), what="the answer of one of them being too few")
        with pytest.raises(SinkUnavailable, match="1 of 3 sentinels") as caught:
            sink.send(batch([message(4)]))
        assert not caught.value.unknown
        group.sentinels[1].server.thaw()
        wait_until(lambda: sends(sink, 5), timeout=20, what="two of three being enough again")


def test_sentinel_that_has_missed_a_fail_over_is_not_believed(group: Sentinel) -> None:
    """It names the old primary as surely as the others name the new one; its configuration is older."""
    stale = group.sentinels[2]
    stale.server.freeze()
    group.fail_over()
    hosts = ",".join(f"{LOCALHOST}:{sentinel.port}" for sentinel in reversed(group.sentinels))
    url = f"{group.url.partition('@')[0]}@{hosts}/{group.name}"
    stale.server.thaw()
    with streams(url, wait_replicas=0) as sink, group.current().client() as promoted:
        assert group.current() == group.replica
        wait_until(lambda: sends(sink, 1), what="a message getting through")
        assert len(payloads(promoted)) == 1


def test_silent_sentinel_costs_little(group: Sentinel) -> None:
    group.sentinels[0].server.freeze()
    with streams(group.url) as sink:
        assert sends(sink, 1)
        began, slow = time.monotonic(), 0
        while time.monotonic() - began < 2.5:
            at = time.monotonic()
            assert sends(sink, 2)
            slow += time.monotonic() - at > 0.5
    group.sentinels[0].server.thaw()
    assert slow <= 1


def test_each_replica_that_could_be_promoted_must_confirm(group: Sentinel) -> None:
    """Until the sentinels hold it for gone: then it is not promoted either."""
    with group.primary.client() as client, streams(group.url, timeout=1.0) as sink:
        assert sends(sink, 1)
        group.replica.server.freeze()
        claim = batch([message(2)])
        with pytest.raises(SinkUnavailable, match="0 of 1 replicas confirmed") as caught:
            sink.send(claim)
        assert caught.value.unknown
        wait_until(lambda: _outcomes(sink, claim) == [DELIVERED], timeout=20, what="the replica being gone")
        group.replica.server.thaw()
        assert len(payloads(client)) == 2


def test_replica_that_returns_counts_again(group: Sentinel) -> None:
    group.replica.server.freeze()
    with streams(group.url, timeout=0.6) as sink, group.sentinels[0].client() as watcher:
        wait_until(lambda: sends(sink, 1), timeout=20, what="the replica being gone")
        group.replica.server.thaw()
        wait_until(lambda: "s_down" not in _flags(watcher), timeout=20, what="the replica being back")
        with streams(group.url, timeout=0.6) as careful:
            group.replica.server.freeze()
            with pytest.raises(SinkUnavailable, match="0 of 1 replicas confirmed"):
                careful.send(batch([message(2)]))
        group.replica.server.thaw()


def test_users_with_as_few_rights_as_the_docs_say(group: Sentinel) -> None:
    commands = ["+evalsha", "+eval", "+get", "+set", "+del", "+expire", "+ping", "+xadd", "+wait"]
    keys = ["outbox-relay:mark:*", "orders"]
    for server in (group.primary, group.replica):
        with server.client() as client:
            client.acl_setuser("few", enabled=True, nopass=True, keys=keys, commands=commands)
    asks = ["+sentinel|get-master-addr-by-name", "+sentinel|master", "+sentinel|replicas"]
    for sentinel in group.sentinels:
        with sentinel.client() as client:
            client.execute_command("ACL SETUSER", "watch", "on", ">any", *asks)
    login = {"sentinel_kwargs": {"username": "watch", "password": "any"}}
    with streams(group.url.replace("client:client@", "few:any@"), client=login) as sink:
        first = batch([message(1)])
        assert list(sink.send(first)) == list(sink.send(first)) == [DELIVERED]
        assert list(sink.send(batch([message(2)], settled=(first.token,)))) == [DELIVERED]


def _outcomes(sink: RedisStreamSink, claim: Batch) -> list[Outcome]:
    with suppress(SinkUnavailable):
        return list(sink.send(claim))
    return []


def _flags(watcher: redis.Redis) -> str:
    (fields,) = watcher.execute_command("SENTINEL SLAVES", "primary")
    return " ".join(fields["flags"]) if isinstance(fields["flags"], list | set) else str(fields["flags"])


@pytest.mark.full
def test_tls_on_the_way_to_sentinels_and_primary(tmp_path: Path) -> None:
    certificate_file, key = certificate(tmp_path)
    port, watcher = free_port(), free_port()
    files = {"tls-cert-file": certificate_file, "tls-key-file": key, "tls-ca-cert-file": certificate_file}
    tls = [part for name, value in files.items() for part in (f"--{name}", str(value))]
    with run_redis("redis:7.0", "--tls-port", str(port), "--tls-auth-clients", "no", *tls):
        file = tmp_path / "sentinel.conf"
        lines = [f"{name} {value}" for name, value in files.items()]
        lines += ["port 0", f"tls-port {watcher}", "tls-auth-clients no", "tls-replication yes", f"dir {tmp_path}"]
        file.write_text("\n".join([*lines, f"sentinel monitor primary {LOCALHOST} {port} 1", ""]))
        argv = [*find_redis("redis:7.0"), str(file), "--sentinel"]
        with run_server(argv, ready=lambda: port_open(watcher), name="redis-sentinel"):
            url = f"rediss+sentinel://{LOCALHOST}:{watcher}/primary"
            with pytest.raises(SinkUnavailable, match=r"(?i)certificate.verify.failed"), streams(url):
                pass
            with streams(url, client={"ssl_ca_certs": str(certificate_file)}) as sink:
                wait_until(lambda: sends(sink, 1), what="a message getting through")
