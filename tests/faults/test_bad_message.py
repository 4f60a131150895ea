"""A message that can never succeed: it is dead with a readable reason, and its neighbours are not hurt."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from tests.harness.outbox import Outbox
from tests.servers.base import wait_until

DEEP = '{"a":' + "[" * 3000 + "]" * 3000 + "}"


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("reject", "as the script says"),
        ("retry", "as the script says"),
        ("error", "RuntimeError in the sink"),
        ("escape", "Escape in the sink"),
        ("nothing", "in the sink"),
        ({"do": "retry", "reason": "bad \x00 byte"}, "bad"),
        ({"do": "retry", "reason": "lone \ud800 surrogate"}, "lone"),
        ({"do": "reject", "reason": "long " * 1_000_000}, "long"),
        ({"do": "retry", "after": float("nan")}, "as the script says"),
        ({"do": "retry", "after": -1e30}, "as the script says"),
    ],
    ids=lambda what: str(what)[:40],
)
def test_one_bad_message_is_dead_and_the_others_are_delivered(outbox: Outbox, what: Any, error: str) -> None:
    outbox.configure(max_attempts=2, lease="2s")
    outbox.broker.script(kinds={"bad": what})
    with ExitStack() as stack:
        relays = [stack.enter_context(outbox.relay()) for _ in range(3)]
        good = outbox.insert(5)
        (bad,) = outbox.insert(kind="bad")
        good += outbox.insert(95)
        outbox.wait_until_empty(timeout=15)
        assert all(relay.healthy() for relay in relays)
    assert set(outbox.broker.copies()) == set(good)
    (dead,) = outbox.sql("select id, attempts, left(error, 100), length(error) from relay.dead")
    assert dead[0] == bad
    assert error in dead[2]
    assert dead[3] < 10_000


@pytest.mark.parametrize("after", [1e18, float("inf")])
def test_a_retry_far_away_stays_within_the_timestamps(outbox: Outbox, after: float) -> None:
    outbox.configure()
    outbox.broker.script(kinds={"bad": {"do": "retry", "after": after}})
    with outbox.relay():
        outbox.insert(kind="bad")
        wait_until(lambda: outbox.count("run_at > now() + interval '1 day' and run_at < 'infinity'") == 1)
        assert outbox.count(table="claims") == 0


def test_headers_that_python_cannot_read_hurt_nobody_else(outbox: Outbox) -> None:
    outbox.configure(max_attempts=3, lease="500ms", send_timeout="200ms")
    outbox.insert(5)
    (bad,) = outbox.insert(kind="bad", headers=DEEP)
    outbox.insert(95)
    with outbox.relay(), outbox.relay():
        outbox.wait_until_empty(timeout=20)
    assert outbox.sql("select id from relay.dead") == [(bad,)]
    assert len(outbox.broker.copies()) == 100
