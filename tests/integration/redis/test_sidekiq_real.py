"""Sidekiq 6.4, 7.3 and 8.1 run what our sink pushes, and read it right in their own API and Web UI."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest
import redis

from sinks.base import DELIVERED, Message
from sinks.redis.sidekiq_job import ACTIVE_JOB_CLASS
from sinks.testing import batch, message
from tests.redis_sinks import names, sidekiq
from tests.servers.base import wait_until
from tests.servers.redis import RedisServer
from tests.servers.sidekiq import Sidekiq, every_sidekiq, sidekiq_at

pytestmark = every_sidekiq

WRITTEN = 300.0
"""Seconds ago at which the messages were written."""
CLAIMED = 90.0
"""Seconds ago at which they were claimed. The Web UI shows when a queue's latency began from a minute on."""


@pytest.fixture
def server(redis_server: Callable[[str], RedisServer]) -> RedisServer:
    """What Sidekiq 8 takes at least."""
    server = redis_server("redis:7.0")
    with server.client() as client:
        client.flushall()
    return server


@pytest.fixture
def client(server: RedisServer) -> Iterator[redis.Redis]:
    with server.client() as client:
        yield client


@pytest.fixture
def real(version: str, server: RedisServer) -> Iterator[Sidekiq]:
    with sidekiq_at(version, server.url) as real:
        yield real


def push(url: str, *messages: Message, **options: Any) -> None:
    """Push messages that were written and claimed a while ago."""
    now_us = int(time.time() * 1e6)
    written = [one._replace(created_us=now_us - int(WRITTEN * 1e6)) for one in messages]
    with sidekiq(url, **options) as sink:
        claim = batch(written, claimed_us=now_us - int(CLAIMED * 1e6))
        assert list(sink.send(claim)) == [DELIVERED] * len(messages)


def jid(one: Message) -> str:
    return one.message_id.hex[:24]


def runs(client: redis.Redis) -> dict[str, int]:
    """How often each job ran, by jid."""
    found: Any = client.hgetall("runs")
    return {name.decode(): int(count) for name, count in found.items()}


def notes(client: redis.Redis) -> list[dict[str, Any]]:
    """What the jobs were given, in the order in which they ran."""
    found: Any = client.lrange("notes", 0, -1)
    return [json.loads(note) for note in found]


def times(page: str) -> list[float]:
    """Every time that a page shows, as seconds since 1970."""
    return [datetime.fromisoformat(found).timestamp() for found in re.findall(r'datetime="([^"]+)"', page)]


def test_plain_jobs_run(server: RedisServer, client: redis.Redis, real: Sidekiq) -> None:
    array = message(1, kind="Note", payload='[42, {"a": [1.5, null, true]}, "zoë 😀"]'.encode())
    other = message(2, kind="Note", payload=b'{"id": 1234567890123456789}', headers={"queue": "mail"})
    with real.running(["default", "mail"]):
        push(server.url, array, other)
        wait_until(lambda: len(runs(client)) == 2, what="the jobs having run")
        assert real.api()["queues"] == {name: {"size": 0, "latency": 0, "jobs": []} for name in ("default", "mail")}
    assert runs(client) == {jid(array): 1, jid(other): 1}
    given = {note["jid"]: note["args"] for note in notes(client)}
    assert given == {jid(array): [42, {"a": [1.5, None, True]}, "zoë 😀"], jid(other): [{"id": 1234567890123456789}]}


def test_active_jobs_run(server: RedisServer, client: redis.Redis, real: Sidekiq) -> None:
    one = message(1, kind="NoteActive", payload=b'[42, "text"]', headers={"queue": "mail"})
    with real.running(["mail"]):
        push(server.url, one, active_job=True)
        wait_until(lambda: notes(client), what="the job having run")
    (note,) = notes(client)
    enqueued = datetime.fromisoformat(note.pop("enqueued_at").replace(" UTC", "+00:00")).timestamp()
    assert note == {
        "jid": jid(one),
        "by": "NoteActive",
        "args": [42, "text"],
        "job_id": str(one.message_id),
        "queue": "mail",
    }
    assert enqueued == pytest.approx(time.time() - CLAIMED, abs=15)


def test_failed_job_is_retried_and_another_is_dead(server: RedisServer, client: redis.Redis, real: Sidekiq) -> None:
    flaky = message(1, kind="Flaky")
    waiting = message(2, kind="Failing")
    hopeless = message(3, kind="Failing", headers={"sidekiq": {"retry": 0}})
    gone = message(4, kind="Failing", headers={"sidekiq": {"retry": False}})
    active = message(5, kind="FailingActive")
    with real.running():
        push(server.url, flaky, waiting, hopeless, gone)
        push(server.url, active, active_job=True)
        wait_until(lambda: runs(client).get(jid(flaky)) == 2, timeout=20, what="the retry")
        wait_until(lambda: client.zcard("retry") == 2 and client.zcard("dead") == 1, what="the other failures")
        assert client.llen("queue:default") == 0
    state = real.api()
    assert {job["jid"] for job in state["retries"]} == {jid(waiting), jid(active)}
    assert {job["display_class"] for job in state["retries"]} == {"Failing", "FailingActive"}
    assert [job["jid"] for job in state["dead"]] == [jid(hopeless)]
    now = time.time()
    for job in (*state["retries"], *state["dead"]):
        assert job["error"] == "ArgumentError"
        assert job["created_at"] == pytest.approx(now - WRITTEN, abs=15)
        assert job["enqueued_at"] == pytest.approx(now - CLAIMED, abs=15)
    for job in state["retries"]:
        assert now - 15 < job["at"] < now + 120
    pages = real.pages("/retries", "/morgue", f"/retries/{_key(client, 'retry', jid(waiting))}")
    assert all(name in pages["/retries"] for name in ("Failing", "FailingActive"))
    assert "Failing" in pages["/morgue"]
    assert all(now - WRITTEN - 15 < shown < now + 120 for page in pages.values() for shown in times(page))


def _key(client: redis.Redis, name: str, jid: str) -> str:
    """What the Web UI calls a job of a sorted set."""
    found: Any = client.zrange(name, 0, -1, withscores=True)
    ((score, _),) = [(score, job) for job, score in found if json.loads(job)["jid"] == jid]
    return f"{score!r}-{jid}"


def test_scheduled_jobs_wait_in_sidekiq_s_own_schedule(server: RedisServer, client: redis.Redis, real: Sidekiq) -> None:
    due = time.time() + 4.0
    soon = message(1, kind="Note", headers={"relay.at": due})
    active = message(2, kind="NoteActive", headers={"relay.at": due})
    later = message(3, kind="Note", headers={"relay.at": due + 3600.5, "queue": "mail"})
    push(server.url, soon, later, schedule="sidekiq")
    push(server.url, active, schedule="sidekiq", active_job=True)
    scheduled = {job["jid"]: job for job in real.api()["scheduled"]}
    assert {name: job["at"] for name, job in scheduled.items()} == {
        jid(soon): due,
        jid(active): due,
        jid(later): due + 3600.5,
    }
    assert scheduled[jid(later)]["queue"] == "mail"
    assert all(job["enqueued_at"] is None for job in scheduled.values())
    page = real.pages("/scheduled")["/scheduled"]
    assert sorted(times(page)) == pytest.approx([due, due, due + 3600.5], abs=1)
    with real.running():
        wait_until(lambda: len(runs(client)) == 2, timeout=20, what="the scheduled jobs having run")
        assert time.time() >= due
    assert runs(client) == {jid(soon): 1, jid(active): 1}
    assert [job["jid"] for job in real.api()["scheduled"]] == [jid(later)]


ATTRIBUTES: dict[str, list[Any]] = {
    "tags": ["blue", {"a": 1}, 7, True, ["blue"], [], None],
    "retry_for": ["1h", "3600", 2_000_000_000, True, [1], {}, 3600, 1.5, None],
    "queue": ["", "mail", None],
    "retry": [True, False, 0, 5, None],
    "log_level": ["debug", "fatal", 2, None],
    "backtrace": [True, 5, None],
    "dead": [False, True, None],
}


def test_what_sidekiq_s_own_client_refuses_is_rejected(server: RedisServer, real: Sidekiq) -> None:
    """And what it takes is taken, where it comes in these attributes. What else could go the same way: arguments that
    Ruby cannot write as JSON, too deep or too large for its Float."""
    cases = [{name: value} for name, values in ATTRIBUTES.items() for value in values]
    cases = [case for case in cases if case != {"queue": None}]  # the sink's own name comes in its place
    payloads = ["[" * 99 + "]" * 99, "[" * 100 + "]" * 100, "[1e308]", "[1e309]"]
    answers = real.push(
        [{"class": "Note", "args": [], **case} for case in cases]
        + [{"class": "Note", "args": json.loads(payload)} for payload in payloads[:2]]
    )
    sent = [message(1, headers={"sidekiq": case}) for case in cases]
    sent += [message(1, payload=payload.encode()) for payload in payloads]
    with sidekiq(server.url) as sink:
        ours = [names(sink.send(batch([one])))[0] for one in sent]
    for case, answer, outcome in zip([*cases, *payloads], [*answers, None, "Infinity"], ours, strict=True):
        if answer is not None:
            assert outcome == "Reject", f"{case} raises {answer}"
        elif "retry_for" not in case:  # unknown to 6.4, which takes anything
            assert outcome == "Delivered", str(case)


def test_pages_of_the_web_ui_with_everything_that_is_taken(server: RedisServer, real: Sidekiq) -> None:
    taken = {"tags": ["a b", "<b>"], "retry_for": 60, "log_level": "warn", "backtrace": 3, "dead": False, "bid": "b"}
    push(server.url, message(1, kind="Note", headers={"queue": "A_1:b.c-d", "sidekiq": {**taken, "cattr": {"a": 1}}}))
    assert "Note" in real.pages("/queues", "/queues/A_1:b.c-d")["/queues/A_1:b.c-d"]


def test_api_and_web_ui_read_the_times(server: RedisServer, client: redis.Redis, real: Sidekiq) -> None:
    plain = message(1, kind="Note", headers={"sidekiq": {"tags": ["blue"]}})
    active = message(2, kind="NoteActive", payload=b"[7]")
    push(server.url, plain)
    push(server.url, active, active_job=True)
    state, now = real.api(), time.time()
    queue = state["queues"]["default"]
    assert queue["size"] == 2
    for latency in (state["latency"], queue["latency"], *[job["latency"] for job in queue["jobs"]]):
        assert latency == pytest.approx(CLAIMED, abs=15)
    by_jid = {job["jid"]: job for job in queue["jobs"]}
    for job in by_jid.values():
        assert job["created_at"] == pytest.approx(now - WRITTEN, abs=15)
        assert job["enqueued_at"] == pytest.approx(now - CLAIMED, abs=15)
    assert by_jid[jid(active)]["class"] == ACTIVE_JOB_CLASS
    assert by_jid[jid(active)]["display_class"] == "NoteActive"
    assert by_jid[jid(active)]["display_args"] == [7]
    pages = real.pages("/", "/queues", "/queues/default")
    for text in ("NoteActive", "blue", "payload"):
        assert text in pages["/queues/default"]
    assert times(pages["/queues"]) == [pytest.approx(now - CLAIMED, abs=15)]
