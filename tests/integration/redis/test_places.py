"""Where Redis can be: behind TLS, behind an ACL, named by sentinels, with replicas that must confirm."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from sinks.base import DELIVERED, SinkUnavailable
from sinks.testing import batch, message
from tests.redis_sinks import jobs, marks, payloads, sidekiq, streams
from tests.servers.base import LOCALHOST, free_port, wait_until
from tests.servers.redis import RedisServer, run_redis
from tests.servers.sqs_stub import certificate

COMMANDS = ["+evalsha", "+eval", "+get", "+set", "+del", "+expire", "+ping"]
"""What a sink's user needs at least, besides what pushes. `+select` for a database that is not number 0."""


@contextmanager
def run_tls(folder: Path, *options: str) -> Iterator[str]:
    """The URL of a server whose certificate nobody trusts by default."""
    files, port = certificate(folder), free_port()
    tls = ["--tls-port", str(port), "--tls-cert-file", str(files[0]), "--tls-key-file", str(files[1])]
    with run_redis("redis:7.0", *tls, "--tls-ca-cert-file", str(files[0]), *options):
        yield f"rediss://{LOCALHOST}:{port}/0"


@pytest.mark.full
def test_tls_with_a_private_authority(tmp_path: Path) -> None:
    with run_tls(tmp_path, "--tls-auth-clients", "no") as url:
        with pytest.raises(SinkUnavailable, match=r"(?i)certificate.verify.failed") as caught, streams(url):
            pass
        assert not caught.value.unknown
        with streams(url, client={"ssl_ca_certs": str(tmp_path / "certificate.pem")}) as sink:
            assert list(sink.send(batch([message(1)]))) == [DELIVERED]


@pytest.mark.full
def test_tls_with_a_client_certificate(tmp_path: Path) -> None:
    trusted = {"ssl_ca_certs": str(tmp_path / "certificate.pem")}
    own = {"ssl_certfile": str(tmp_path / "certificate.pem"), "ssl_keyfile": str(tmp_path / "key.pem")}
    with run_tls(tmp_path, "--tls-auth-clients", "yes") as url:
        with pytest.raises(SinkUnavailable), streams(url, client=trusted):
            pass
        with streams(url, client=trusted | own) as sink:
            assert list(sink.send(batch([message(1)]))) == [DELIVERED]


def test_user_with_as_few_rights_as_the_docs_say(redis_url: str, redis_client: redis.Redis) -> None:
    keys, push = ["outbox-relay:mark:*", "orders"], ["+xadd"]
    redis_client.acl_setuser("streams", enabled=True, passwords="+s3cret%", keys=keys, commands=[*COMMANDS, *push])
    keys, push = ["outbox-relay:mark:*", "queues", "queue:*", "schedule"], ["+sadd", "+lpush", "+zadd"]
    redis_client.acl_setuser("jobs", enabled=True, passwords="+s3cret%", keys=keys, commands=[*COMMANDS, *push])
    redis_client.acl_setuser("elsewhere", enabled=True, nopass=True, keys=["*"], commands=[*COMMANDS, "+xadd"])
    try:
        for user, opener in (("streams", streams), ("jobs", sidekiq)):
            settled = batch([message(1)])
            with opener(redis_url.replace("://", f"://{user}:s3cret%25@")) as sink:
                assert list(sink.send(settled)) == list(sink.send(settled)) == [DELIVERED]
                assert list(sink.send(batch([message(2)], settled=(settled.token,)))) == [DELIVERED]
        with pytest.raises(SinkUnavailable, match="password") as caught:
            with streams(redis_url.replace("://", "://streams:wrong@")):
                pass
        assert not caught.value.unknown
        at_one = redis_url.replace("://", "://elsewhere:any@").removesuffix("/0") + "/1"
        with pytest.raises(SinkUnavailable, match=r"(?i)no permissions.*select"), streams(at_one):
            pass
        redis_client.acl_setuser("elsewhere", enabled=True, nopass=True, commands=["+select"])
        with streams(at_one) as sink:
            assert list(sink.send(batch([message(1)]))) == [DELIVERED]
        assert (len(payloads(redis_client)), len(jobs(redis_client))) == (2, 2)
        assert len(marks(redis_client)) == 2
    finally:
        redis_client.acl_deluser("streams", "jobs", "elsewhere")


@contextmanager
def run_pair(version: str) -> Iterator[tuple[RedisServer, RedisServer]]:
    """A primary and a replica that has caught up with it."""
    with run_redis(version) as primary, run_redis(version, "--replicaof", LOCALHOST, str(primary.port)) as replica:
        with replica.client() as client:
            wait_until(lambda: client.info("replication")["master_link_status"] == "up", what="the replica being there")
        yield primary, replica


@pytest.mark.parametrize("version", ["redis:6.2", pytest.param("redis:8.0", marks=pytest.mark.full)])
def test_replicas_must_confirm_where_that_is_asked_for(version: str) -> None:
    with run_pair(version) as (primary, replica), primary.client() as client:
        claim = batch([message(1)])
        with streams(primary.url, timeout=0.6, wait_replicas=1) as sink:
            assert list(sink.send(batch([message(0)]))) == [DELIVERED]
            replica.server.freeze()
            for _ in range(2):
                with pytest.raises(SinkUnavailable, match="0 of 1 replicas") as caught:
                    sink.send(claim)
                assert caught.value.unknown
                sink.close()
            assert len(payloads(client)) == 2
            replica.server.thaw()
            wait_until(lambda: list(sink.send(claim)) == [DELIVERED], what="the replica's confirmation")
            again = batch([one._replace(prior_tokens=(claim.token,)) for one in claim.messages])
            assert list(sink.send(again)) == [DELIVERED]
        assert len(payloads(client)) == 2


def test_refusal_is_known_whatever_the_replicas_say() -> None:
    with run_redis() as server, server.client() as client, streams(server.url, wait_replicas=1, timeout=1) as sink:
        client.config_set("maxmemory", 1)
        with pytest.raises(SinkUnavailable, match="OOM") as caught:
            sink.send(batch([message(1)]))
        assert not caught.value.unknown
        client.execute_command("REPLICAOF", LOCALHOST, free_port())
        with pytest.raises(SinkUnavailable, match="READONLY") as caught:
            sink.send(batch([message(1)]))
        assert not caught.value.unknown


def test_denied_wait_is_no_confirmation(redis_url: str, redis_client: redis.Redis) -> None:
    redis_client.acl_setuser("hasty", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-wait"])
    with streams(redis_url.replace("://", "://hasty:any@"), wait_replicas=1) as sink:
        redis_client.script_flush()
        with pytest.raises(SinkUnavailable, match="NOPERM") as caught:
            sink.send(batch([message(1)]))
        assert caught.value.unknown
    redis_client.acl_deluser("hasty")
    assert len(payloads(redis_client)) == 1
