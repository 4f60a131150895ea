"""Configuration of the sinks in Redis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from sinks.base import SinkConfig
from sinks.redis.sidekiq import SidekiqOptions
from sinks.redis.stream import RedisStreamOptions, RedisStreamSink
from sinks.redis.url import parse
from sinks.template import Template
from tests.unit.configured import DATABASE, problems

URL = "redis://localhost:6379/0"


@pytest.mark.parametrize("url", [URL, "rediss://user:word@host:1/2", "unix:///run/redis.sock?db=1"])
def test_urls(url: str) -> None:
    assert RedisStreamOptions(url=url).url == url


@pytest.mark.parametrize(
    ("url", "kind", "addresses", "service", "db"),
    [
        ("redis+sentinel://a:1,b/main/2", "sentinel", (("a", 1), ("b", 26379)), "main", 2),
        ("rediss+sentinel://user:p%40ss@[::1]:1,b:2/my%2Fmain", "sentinel", (("::1", 1), ("b", 2)), "my/main", 0),
        ("redis+cluster://a:1,b", "cluster", (("a", 1), ("b", 6379)), "", 0),
        ("rediss+cluster://:p@a/?client_name=relay", "cluster", (("a", 6379),), "", 0),
    ],
)
def test_urls_of_several_servers(
    url: str, kind: str, addresses: tuple[tuple[str, int], ...], service: str, db: int
) -> None:
    place = parse(RedisStreamOptions(url=url).url)
    assert (place.kind, place.addresses, place.service, place.options["db"]) == (kind, addresses, service, db)
    assert ("connection_class" in place.options) == url.startswith("rediss")
    assert place.options.get("password") == ("p@ss" if "p%40ss" in url else "p" if ":p@" in url else None)


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://:hidden@a:1",
        "redis+sentinel://:hidden@a:1/main/2/3",
        "redis+sentinel://:hidden@a:1/main/two",
        "redis+sentinel://:hidden@a:one/main",
        "redis+sentinel://:hidden@a:1,,b/main",
        "redis+cluster://:hidden@a:1/5",
        "redis+cluster://:hidden@",
        "redis+proxy://:hidden@a",
        "http+cluster://:hidden@a",
        "http://:hidden@host",
    ],
)
def test_bad_url_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ValidationError) as caught:
        RedisStreamOptions(url=url)
    assert "a Redis URL" in caught.value.errors()[0]["msg"]
    assert "hidden" not in caught.value.errors()[0]["msg"]
    assert "hidden" not in repr(RedisStreamOptions(url="redis://:hidden@host"))


@pytest.mark.parametrize(
    "wrong",
    [{"retry": -1}, {"retry": "often"}, {"namespace": ""}, {"schedule": "cron"}, {"queue": "{kid}"}, {"maxlen": 5}],
)
def test_wrong_sidekiq_option(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        SidekiqOptions.model_validate({"url": URL, **wrong})
    assert caught.value.errors()[0]["loc"][0] in wrong


@pytest.mark.parametrize("retry", [True, False, 0, 5])
def test_retry_stays_what_it_is(retry: bool | int) -> None:
    found = SidekiqOptions.model_validate({"url": URL, "retry": retry}).retry
    assert found == retry
    assert type(found) is type(retry)


def test_sidekiq_on_a_cluster_is_refused() -> None:
    with pytest.raises(ValidationError, match="Sidekiq does not work on a Redis Cluster"):
        SidekiqOptions(url="redis+cluster://a:1")
    assert SidekiqOptions(url="redis+sentinel://a:1/main").url == "redis+sentinel://a:1/main"


def test_options_of_the_sentinels_are_checked_too() -> None:
    options = RedisStreamOptions(url="rediss+sentinel://a:1/main")
    known = {"ssl_ca_certs": __file__, "sentinel_kwargs": {"username": "watcher", "password": "x"}}
    RedisStreamSink(SinkConfig("orders", options, client=known)).close()
    with pytest.raises(ValueError, match="no_such_option"):
        RedisStreamSink(SinkConfig("orders", options, client={"sentinel_kwargs": {"no_such_option": 1}}))


def test_wrong_stream_option() -> None:
    with pytest.raises(ValidationError):
        RedisStreamOptions(url=URL, maxlen=0)


@pytest.mark.parametrize("queue", ["a/b", "a b", "a\nb", "ä", "x/{kind}", "{kind}?"])
def test_queue_without_a_page_in_the_web_ui(queue: str) -> None:
    with pytest.raises(ValidationError, match="a queue's name of ASCII letters"):
        SidekiqOptions(url=URL, queue=Template(queue))


@pytest.mark.parametrize("stream", ["schedule", "retry", "queues", "queue:x", "queue:{kind}", "stat:a", "a\nb"])
def test_stream_in_the_place_of_other_keys(stream: str) -> None:
    with pytest.raises(ValidationError, match="which is not Sidekiq's own"):
        RedisStreamOptions(url=URL, stream=Template(stream))
    marks = "outbox-relay:mark:{kind}"
    with pytest.raises(ValidationError, match="outbox-relay:"):
        RedisStreamOptions(url=URL, stream=Template(marks))


@pytest.mark.parametrize("stream", ["a queue", "schedule:a", "zoë/1", "my-queue:x", "{{queue:x}}"])
def test_stream_of_another_name(stream: str) -> None:
    assert RedisStreamOptions(url=URL, stream=Template(stream)).stream.text == stream


def test_sink_whose_name_would_be_the_stream_s() -> None:
    with pytest.raises(ValueError, match="the sink's name"):
        RedisStreamSink(SinkConfig("dead", RedisStreamOptions(url=URL)))
    RedisStreamSink(SinkConfig("dead", RedisStreamOptions(url=URL, stream=Template("of:{sink}")))).close()


def test_option_that_does_not_go_with_the_rest_is_named(tmp_path: Path) -> None:
    sinks = f"""{DATABASE}
[sinks.dead]
type = "redis-stream"
url = "{URL}"
[sinks.slots]
type = "redis-stream"
url = "redis+cluster://localhost"
order = "key"
stream = "{{kind}}"
[sinks.jobs]
type = "sidekiq"
url = "{URL}"
queue = "a/b"
"""
    found = problems(tmp_path, sinks)
    assert [problem.split(" expected ")[0] for problem in found] == [
        "relay.toml: sinks.dead.stream:",
        "relay.toml: sinks.slots.stream:",
        "relay.toml: sinks.jobs.queue:",
    ]
    assert "slot depends on nothing but the key" in found[1]
