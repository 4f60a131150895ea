"""The database goes away during the last attempt of a key's first message: the key goes on."""

from __future__ import annotations

import pytest

from tests.harness.outbox import Outbox
from tests.servers.base import wait_until


@pytest.mark.parametrize("after_dead", ["skip", "block"])
@pytest.mark.parametrize("answer", ["deliver", "retry"])
def test_sessions_end_during_the_last_attempt_of_a_key(outbox: Outbox, answer: str, after_dead: str) -> None:
    outbox.configure(order="key", shards=4, batch_messages=1, after_dead=after_dead)
    outbox.broker.script(hang=True, kinds={"last": answer})
    with outbox.relay(timeout=60):
        (first,) = outbox.insert(kind="last", max_attempts=1, key="k1")
        later = outbox.insert(2, key="k1")
        wait_until(outbox.broker.calls)
        assert outbox.end_sessions() >= 3
        outbox.broker.script(kinds={"last": answer})
        blocked = answer == "retry" and after_dead == "block"
        if blocked:
            wait_until(lambda: outbox.count("run_at = 'infinity'") == 2)
            outbox.sql("update relay.stuck_keys set retry_at = now()")
        outbox.wait_until_empty(timeout=10)
        wait_until(lambda: outbox.count(table="stuck_keys") == 0)
    assert outbox.sql("select id, attempts from relay.dead") == ([] if answer == "deliver" else [(first, 1)])
    sent = [delivery.id for delivery in outbox.broker.deliveries()]
    assert sent == ([first, *later] if answer == "deliver" else later)
