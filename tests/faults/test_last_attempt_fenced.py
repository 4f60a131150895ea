"""Relays that die during a message's last attempt, before a broker with a fence: the message is buried only once its
old request can do nothing any more, and counts as delivered where that request has done its work.

What else could go the same way: the same without order, with keys that are blocked, and for a message that a person
requeues.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest
import redis

from relay.database.connection import Database
from relay.process.parts import new_claims
from sinks.base import Batch, ClaimRevoked, Sink
from tests.command import Command
from tests.harness.served import Served
from tests.redis_sinks import payloads
from tests.servers.base import wait_until

STREAM = "events"


@contextmanager
def served(url: str, redis_url: str, order: str, **keys: str) -> Iterator[Served]:
    stream = {
        "type": "redis-stream",
        "url": redis_url,
        "stream": STREAM,
        "order": order,
        "max_attempts": 1,
        "shards": 1,
    }
    with Served(url, {"main": {**stream, **keys}}) as here:
        yield here


def write(here: Served, *payloads: str) -> list[int]:
    text = "insert into relay.outbox (kind, key, payload) values ('made', 'a', %s::text::json) returning id"
    return [here.sql(text, payload)[0][0] for payload in payloads]


@contextmanager
def in_the_network(here: Served, messages: int) -> Iterator[tuple[Sink, Batch]]:
    """A relay that has claimed so many messages, sent its request, and died: the request is still under way."""
    settings = here.engines[0]._settings
    claims = new_claims(Database(here.url), settings, "dies")
    claim = claims.claim(messages)
    assert claim
    claims.close()
    sink = settings.sink_class(settings.config)
    sink.open()
    yield sink, Batch(claim.token, claim.messages, claim.claimed_us)
    sink.close()


def die(here: Served) -> None:
    here.sql("update relay.claims set locked_until = now() - interval '1 second'")
    assert here.store.reap()


@pytest.mark.parametrize(("order", "after_dead"), [("none", "skip"), ("key", "skip"), ("key", "block")])
def test_an_old_request_cannot_arrive_behind_later_messages(
    relay_database_url: str, redis_url: str, redis_client: redis.Redis, order: str, after_dead: str
) -> None:
    with served(relay_database_url, redis_url, order, after_dead=after_dead) as here:
        (first,) = write(here, "1")
        with in_the_network(here, 1) as (sink, request):
            die(here)
            later = write(here, "2", "3")
            here.work([first])
            assert here.sql("select id, attempts from relay.dead") == [(first, 1)]
            if after_dead == "block":
                assert payloads(redis_client, STREAM) == []
                here.sql("update relay.stuck_keys set retry_at = now()")
            here.work(later)
            with pytest.raises(ClaimRevoked):
                sink.send(request)
    assert payloads(redis_client, STREAM) == [b"2", b"3"]


@pytest.mark.parametrize("order", ["none", "key"])
def test_a_request_that_arrived_is_no_death(
    relay_database_url: str, redis_url: str, redis_client: redis.Redis, order: str
) -> None:
    with served(relay_database_url, redis_url, order) as here:
        ids = write(here, "1", "2")
        with in_the_network(here, 2) as (sink, request):
            sink.send(request)
            die(here)
        here.work([*ids, *write(here, "3")])
        assert here.dead() == {}
        assert here.sql("select id from relay.arrived order by id") == [(id,) for id in ids]
    assert payloads(redis_client, STREAM) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("again", [False, True])
def test_requeue_says_whether_it_was_sent(
    relay_database_url: str, redis_url: str, redis_client: redis.Redis, tmp_path: Path, again: bool
) -> None:
    with served(relay_database_url, redis_url, "none") as here:
        (first,) = write(here, "1")
        with in_the_network(here, 1) as (sink, request):
            sink.send(request)
            token = request.token
        bury(here, first, token)
        relay = Command(relay_database_url, tmp_path)
        relay.configure('[sinks.main]\ntype = "memory"\n')
        options = ["--again"] if again else []
        asking = relay.start("dead", "requeue", str(first), "--wait", "--yes", *options)
        wait_until(lambda: not here.sql("select id from relay.dead"), timeout=30, what="its being requeued")
        here.work([first])
        said, _ = asking.communicate(timeout=30)
    copies = 2 if again else 1
    assert payloads(redis_client, STREAM) == [b"1"] * copies
    assert said.splitlines() == [
        "requeued 1 message",
        f"delivered: {int(again)}; had arrived before, not sent again: {int(not again)}; dead again: 0",
    ]


def bury(here: Served, id: int, token: UUID) -> None:
    """As a relay without a fence, or an earlier release, would have done it."""
    here.sql("delete from relay.claims")
    here.sql(
        "with gone as (delete from relay.outbox where id = %s returning *)"
        " insert into relay.dead"
        " (id, sink, shard, kind, key, payload, message_id, attempts, prior_tokens, created_at, error)"
        " select id, sink, shard, kind, key, payload, message_id, attempts, array[%s::uuid], created_at, '?' from gone",
        id,
        token,
    )
