"""Jobs as Sidekiq's own client writes them, in its own keys."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
import redis

from sinks.base import DELIVERED, Reject
from sinks.testing import CLAIMED_US, CREATED_US, batch, message
from tests.redis_sinks import job_texts, jobs, names, sidekiq
from tests.servers.redis import every_redis

MESSAGE_ID = UUID("0192f5c0-7b1e-7a55-9f3e-2f6c1d1b6a01")


def scheduled(client: redis.Redis, key: str = "schedule") -> list[tuple[dict[str, Any], float]]:
    found: Any = client.zrange(key, 0, -1, withscores=True)
    return [(json.loads(job), score) for job, score in found]


@every_redis
def test_plain_job(redis_url: str, redis_client: redis.Redis) -> None:
    one = message(1, payload=b'[42, {"a": 1.0}]', message_id=MESSAGE_ID)
    with sidekiq(redis_url) as sink:
        assert list(sink.send(batch([one]))) == [DELIVERED]
    (text,) = job_texts(redis_client)
    assert text == (
        b'{"class":"SendReceipt","retry":true,"queue":"default","jid":"0192f5c07b1e7a559f3e2f6c",'
        b'"created_at":1764445000.123457,"enqueued_at":1764445001.123456,"args":[42, {"a": 1.0}]}'
    )
    assert redis_client.smembers("queues") == {b"default"}


def test_times_always_have_a_decimal_point(redis_url: str, redis_client: redis.Redis) -> None:
    with sidekiq(redis_url) as sink:
        sink.send(batch([message(1, created_us=1_764_445_000_000_000)], claimed_us=1_764_445_001_000_000))
    (text,) = job_texts(redis_client)
    assert b'"created_at":1764445000.000000,"enqueued_at":1764445001.000000' in text


def test_workers_take_jobs_in_id_order(redis_url: str, redis_client: redis.Redis) -> None:
    with sidekiq(redis_url) as sink:
        sink.send(batch([message(number) for number in range(30)]))
    assert [job["args"][0] for job in jobs(redis_client)] == list(range(30))


@pytest.mark.parametrize(
    ("payload", "args"),
    [
        (b"[1]", b"[1]"),
        (b" \n\t[1]", b" \n\t[1]"),
        (b'{"id": 1}', b'[{"id": 1}]'),
        (b"42", b"[42]"),
        (b'"[text]"', b'["[text]"]'),
        (b"null", b"[null]"),
    ],
)
def test_anything_but_an_array_is_the_only_argument(
    redis_url: str, redis_client: redis.Redis, payload: bytes, args: bytes
) -> None:
    with sidekiq(redis_url) as sink:
        sink.send(batch([message(1, payload=payload)]))
    assert job_texts(redis_client)[0].endswith(b'"args":' + args + b"}")


def test_queue_comes_from_the_template_or_from_job_attributes(redis_url: str, redis_client: redis.Redis) -> None:
    headers = [{}, {"queue": "mail"}, {"queue": "mail", "sidekiq": {"queue": "urgent"}}]
    with sidekiq(redis_url) as sink:
        sink.send(batch([message(number, headers=each) for number, each in enumerate(headers)]))
    found = {queue: [job["queue"] for job in jobs(redis_client, queue)] for queue in ("default", "mail", "urgent")}
    assert found == {"default": ["default"], "mail": ["mail"], "urgent": ["urgent"]}
    assert redis_client.smembers("queues") == {b"default", b"mail", b"urgent"}


def test_job_attributes_are_merged_but_never_ours(redis_url: str, redis_client: redis.Redis) -> None:
    asked = {
        "retry": 5,
        "tags": ["a"],
        "jid": "x",
        "class": "Evil",
        "args": [],
        "created_at": 1,
        "at": 2,
        "dead": False,
    }
    with sidekiq(redis_url, retry=False) as sink:
        sink.send(batch([message(1, headers={"sidekiq": asked}), message(2)]))
    first, second = jobs(redis_client)
    assert (first["retry"], first["tags"], first["dead"], first["class"]) == (5, ["a"], False, "SendReceipt")
    assert first["jid"] != "x"
    assert first["created_at"] == (CREATED_US + 1) / 1e6
    assert first["args"] == [1, "payload"]
    assert "at" not in first
    assert second["retry"] is False


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"payload": None, "body": b"\xff"}, "Sidekiq takes JSON only"),
        ({"headers": {"sidekiq": [1]}}, "must be an object"),
        ({"headers": {"sidekiq": {"queue": ""}}}, "expected a queue's name"),
        ({"headers": {"sidekiq": {"queue": 7}}}, "expected a queue's name"),
        ({"headers": {"relay.at": "tomorrow"}}, "must be a number"),
        ({"headers": {"queue": {"a": 1}}}, "is not a text"),
    ],
)
def test_message_that_is_no_job_is_rejected(
    redis_url: str, redis_client: redis.Redis, changes: dict[str, Any], reason: str
) -> None:
    with sidekiq(redis_url) as sink:
        outcomes = sink.send(batch([message(1, **changes), message(2)]))
    assert isinstance(outcomes[0], Reject)
    assert reason in outcomes[0].reason
    assert outcomes[1] == DELIVERED
    assert len(jobs(redis_client)) == 1


def test_future_job_goes_to_the_schedule(redis_url: str, redis_client: redis.Redis) -> None:
    now = CLAIMED_US / 1e6
    messages = [
        message(1, headers={"relay.at": now + 60.25, "queue": "mail"}),
        message(2, headers={"relay.at": now - 1}),
        message(3, headers={"relay.at": int(now) + 3600}),
    ]
    with sidekiq(redis_url, schedule="sidekiq") as sink:
        claim = batch(messages)
        assert list(sink.send(claim)) == list(sink.send(claim)) == [DELIVERED] * 3
    (first, first_at), (second, second_at) = scheduled(redis_client)
    assert (first["args"][0], first["queue"], first_at) == (1, "mail", now + 60.25)
    assert (second["args"][0], second_at) == (3, int(now) + 3600)
    assert not {"at", "enqueued_at"} & {*first, *second}
    assert [job["args"][0] for job in jobs(redis_client)] == [2]
    assert redis_client.smembers("queues") == {b"default"}


def test_namespace_is_before_every_key_of_sidekiq_s(redis_url: str, redis_client: redis.Redis) -> None:
    later = message(2, headers={"relay.at": CLAIMED_US / 1e6 + 60})
    with sidekiq(redis_url, namespace="app") as sink:
        sink.send(batch([message(1), later]))
    found: Any = redis_client.keys()
    assert {b"app:queue:default", b"app:queues", b"app:schedule"} == {
        key for key in found if not key.startswith(b"outbox-relay:mark:")
    }


def test_active_job(redis_url: str, redis_client: redis.Redis) -> None:
    one = message(1, kind='Mail::"Job"', payload=b'{"user": 1}', message_id=MESSAGE_ID, headers={"queue": "mail"})
    with sidekiq(redis_url, active_job=True) as sink:
        sink.send(batch([one]))
    (job,) = jobs(redis_client, "mail")
    (data,) = job.pop("args")
    assert job == {
        "class": "ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper",
        "wrapped": 'Mail::"Job"',
        "queue": "mail",
        "retry": True,
        "jid": "0192f5c07b1e7a559f3e2f6c",
        "created_at": (CREATED_US + 1) / 1e6,
        "enqueued_at": CLAIMED_US / 1e6,
    }
    assert data == {
        "job_class": 'Mail::"Job"',
        "job_id": str(MESSAGE_ID),
        "provider_job_id": None,
        "queue_name": "mail",
        "priority": None,
        "arguments": [{"user": 1}],
        "executions": 0,
        "exception_executions": {},
        "enqueued_at": "2025-11-29T19:36:41.123456Z",
    }


def test_denied_schedule_holds_scheduled_jobs_only(redis_url: str, redis_client: redis.Redis) -> None:
    redis_client.set("schedule", "no sorted set")
    later = message(1, headers={"relay.at": CLAIMED_US / 1e6 + 60})
    with sidekiq(redis_url) as sink:
        assert names(sink.send(batch([later, message(2)]))) == ["Hold", "Delivered"]
