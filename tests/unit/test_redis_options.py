"""Configuration of the sinks in Redis."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from sinks.redis_stream import RedisStreamOptions
from sinks.sidekiq import SidekiqOptions

URL = "redis://localhost:6379/0"


@pytest.mark.parametrize("url", [URL, "rediss://user:word@host:1/2", "unix:///run/redis.sock?db=1"])
def test_urls(url: str) -> None:
    assert RedisStreamOptions(url=url).url == url


def test_bad_url_is_refused_without_its_password() -> None:
    with pytest.raises(ValidationError) as caught:
        RedisStreamOptions(url="http://:hidden@host")
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


def test_wrong_stream_option() -> None:
    with pytest.raises(ValidationError):
        RedisStreamOptions(url=URL, maxlen=0)
