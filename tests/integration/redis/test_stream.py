"""Redis Streams on the wire, and the sink's own options."""

from __future__ import annotations

from uuid import UUID

import redis

from sinks.base import DELIVERED, Number
from sinks.template import Template
from sinks.testing import batch, message
from tests.redis_sinks import entries, names, payloads, streams
from tests.servers.redis import every_redis

MESSAGE_ID = UUID("0192f5c0-7b1e-7a55-9f3e-2f6c1d1b6a01")


@every_redis
def test_fields_of_an_entry(redis_url: str, redis_client: redis.Redis) -> None:
    full = message(
        1,
        kind="order.created",
        key="zoë",
        payload='{"total": 9.90, "name": "zoë"}'.encode(),
        headers={"trace": "00-ab", "n": Number("1.50"), "tags": ["a", "ü"], "none": None, "yes": True},
        message_id=MESSAGE_ID,
        created_us=1_764_445_000_000_007,
    )
    body = message(2, payload=None, body=b"\xff\r\n\x00", message_id=MESSAGE_ID, created_us=-1)
    with streams(redis_url) as sink:
        assert list(sink.send(batch([full, body]))) == [DELIVERED] * 2
    first, second = entries(redis_client, "orders")
    assert first == {
        "message_id": b"0192f5c0-7b1e-7a55-9f3e-2f6c1d1b6a01",
        "kind": b"order.created",
        "key": "zoë".encode(),
        "created_at": b"2025-11-29T19:36:40.000007Z",
        "payload": full.data,
        "header:trace": b"00-ab",
        "header:n": b"1.50",
        "header:tags": '["a","ü"]'.encode(),
        "header:none": b"null",
        "header:yes": b"true",
    }
    assert second == {
        "message_id": b"0192f5c0-7b1e-7a55-9f3e-2f6c1d1b6a01",
        "kind": b"SendReceipt",
        "created_at": b"1969-12-31T23:59:59.999999Z",
        "payload": b"\xff\r\n\x00",
    }


def test_stream_is_named_after_the_sink_unless_told_otherwise(redis_url: str, redis_client: redis.Redis) -> None:
    with streams(redis_url, stream=Template("{sink}")) as sink:
        sink.send(batch([message(1)]))
    with streams(redis_url, stream=Template("events:{kind}:{key:-}")) as sink:
        sink.send(batch([message(2, kind="order.created"), message(3, kind="order.paid", key="7")]))
    found = ["sink", "events:order.created:-", "events:order.paid:7"]
    assert [len(payloads(redis_client, name)) for name in found] == [1, 1, 1]


def test_maxlen_trims_about_there(redis_url: str, redis_client: redis.Redis) -> None:
    with streams(redis_url, maxlen=100) as sink:
        assert list(sink.send(batch([message(number) for number in range(1000)]))) == [DELIVERED] * 1000
    assert 100 <= int(redis_client.xlen("orders")) < 300


def test_full_stream_holds_its_messages(redis_url: str, redis_client: redis.Redis) -> None:
    redis_client.xadd("full", {"a": "b"}, id="18446744073709551615-18446744073709551615")
    with streams(redis_url) as sink:
        assert names(sink.send(batch([message(1, headers={"to": "full"}), message(2)]))) == ["Hold", "Delivered"]


def test_more_headers_than_an_entry_takes(redis_url: str, redis_client: redis.Redis) -> None:
    messages = [message(count, headers={f"h{n}": "x" for n in range(count)}) for count in (1000, 1001)]
    with streams(redis_url) as sink:
        outcomes = sink.send(batch(messages))
    assert names(outcomes) == ["Delivered", "Reject"]
    assert "1001 headers" in repr(outcomes[1])
    assert len(entries(redis_client, "orders")[0]) == 1004
