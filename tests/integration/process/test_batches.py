"""How much one claim takes."""

from __future__ import annotations

import random

from tests.harness.outbox import Outbox
from tests.servers.base import wait_until

KIB = 1024


def body(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def sizes_of_calls(outbox: Outbox) -> list[int]:
    """Bytes that each call had to send."""
    sizes = {delivery.id: len(delivery.data) for delivery in outbox.broker.deliveries()}
    return [sum(sizes[id] for id in call.ids) for call in outbox.broker.calls()]


def insert_bodies(outbox: Outbox, size: int, count: int) -> list[int]:
    return outbox.insert(count, payload=None, body=body(size))


def test_a_batch_is_bounded_by_bytes(outbox: Outbox) -> None:
    outbox.configure(batch_messages=1000, batch_bytes="256KiB")
    ids = insert_bodies(outbox, 100 * KIB, 10) + outbox.insert(300)
    with outbox.relay():
        outbox.wait_until_empty()
    assert outbox.broker.copies() == dict.fromkeys(ids, 1)
    assert max(sizes_of_calls(outbox)) <= 256 * KIB
    assert len(outbox.broker.calls()) <= 7


def test_compressed_payloads_count_by_what_is_sent(outbox: Outbox) -> None:
    outbox.configure(batch_messages=1000, batch_bytes="256KiB")
    text = '"' + "a" * 100 * KIB + '"'
    outbox.insert(10, payload=text)
    with outbox.relay():
        outbox.wait_until_empty()
    assert max(sizes_of_calls(outbox)) <= 256 * KIB
    assert {delivery.data for delivery in outbox.broker.deliveries()} == {text}


def test_a_message_above_the_limit_goes_alone(outbox: Outbox) -> None:
    outbox.configure(batch_messages=1000, batch_bytes="64KiB")
    small = outbox.insert(5)
    huge = insert_bodies(outbox, 300 * KIB, 2)
    small += outbox.insert(5)
    with outbox.relay():
        outbox.wait_until_empty()
    calls = [call.ids for call in outbox.broker.calls()]
    assert calls[:3] == [small[:5], huge[:1], huge[1:]]
    assert [id for ids in calls[3:] for id in ids] == small[5:]


def test_big_headers_count_too(outbox: Outbox) -> None:
    outbox.configure(batch_messages=1000, batch_bytes="256KiB")
    outbox.sql(
        """insert into relay.outbox (kind, payload, headers)
           select 'made', '1', jsonb_build_object('h', (select string_agg(md5((n * 1000 + m)::text), '')
                                                           from generate_series(1, 3200) m))
             from generate_series(1, 10) n"""
    )
    with outbox.relay():
        outbox.wait_until_empty()
    assert max(len(call.ids) for call in outbox.broker.calls()) <= 3


def test_messages_leave_in_the_order_of_their_ids(outbox: Outbox) -> None:
    outbox.configure(batch_messages=30)
    ids = outbox.insert(200)
    with outbox.relay():
        outbox.wait_until_empty()
    assert [delivery.id for delivery in outbox.broker.deliveries()] == ids


def test_only_the_chosen_sinks_are_served(outbox: Outbox) -> None:
    routes = [{"kind": "*", "sink": "main"}, {"kind": "*", "sink": "other"}]
    outbox.configure({"main": {}, "other": {}}, routes=routes)
    outbox.insert(5)
    with outbox.relay("--sink", "other"):
        wait_until(lambda: outbox.count("sink = 'other'") == 0)
    assert outbox.count("sink = 'main'") == 5
    assert {delivery.sink for delivery in outbox.broker.deliveries()} == {"other"}
