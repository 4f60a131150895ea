"""What becomes of messages while everything works: `relay run` on a real PostgreSQL."""

from __future__ import annotations

from tests.harness.outbox import Outbox
from tests.servers.base import wait_until


def test_a_message_is_delivered_and_leaves(outbox: Outbox) -> None:
    outbox.configure()
    ids = outbox.insert(45, payload='{"total": 9.90}')
    with outbox.relay():
        outbox.wait_until_empty()
    assert outbox.broker.copies() == dict.fromkeys(ids, 1)
    assert {delivery.data for delivery in outbox.broker.deliveries()} == {'{"total": 9.90}'}
    assert max(len(call.ids) for call in outbox.broker.calls()) == 20


def test_two_relays_share_a_backlog(outbox: Outbox) -> None:
    outbox.configure(workers=2)
    outbox.broker.script(each=0.001)
    with outbox.relay() as one, outbox.relay() as other:
        ids = outbox.insert(2000)
        outbox.wait_until_empty()
    assert outbox.broker.copies() == dict.fromkeys(ids, 1)
    by_process = {delivery.pid for delivery in outbox.broker.deliveries()}
    assert by_process == {one.pid, other.pid}


def test_messages_are_dead_after_their_attempts(outbox: Outbox) -> None:
    outbox.configure(max_attempts=3)
    outbox.broker.script(kinds={"bad": {"do": "retry", "reason": "no"}})
    (bad,), (worse,), good = outbox.insert(kind="bad"), outbox.insert(kind="bad", max_attempts=1), outbox.insert(10)
    with outbox.relay() as relay:
        outbox.wait_until_empty()
        wait_until(lambda: relay.metric("relay_messages_total", outcome="dead") == 2)
    assert outbox.broker.tries() == {**dict.fromkeys(good, 1), bad: 3, worse: 1}
    dead = outbox.sql("select id, attempts, error from relay.dead order by id")
    assert dead == [(bad, 3, "no"), (worse, 1, "no")]
