"""What the log says of single messages, so that they can be found at their consumers."""

from __future__ import annotations

import pytest

from tests.harness.outbox import Outbox

pytestmark = pytest.mark.full


@pytest.mark.parametrize("order", ["none", "key"])
def test_each_delivered_message_has_a_line_at_level_debug(outbox: Outbox, order: str) -> None:
    outbox.configure(order=order)
    outbox.broker.script(kinds={"bad": "reject"})
    outbox.environment["RELAY_LOG__LEVEL"] = "debug"
    outbox.insert(3, kind="good", payload='"secret"')
    outbox.insert(kind="bad", payload='"secret"')
    written = outbox.sql("select id, message_id::text, kind from relay.outbox order by id")
    with outbox.relay() as relay:
        outbox.wait_until_empty()
        delivered, dead = relay.events("message delivered"), relay.events("message is dead")
        assert "secret" not in relay.server.tail(500)
    said = [(event["id"], event["message_id"], event["kind"]) for event in [*delivered, *dead]]
    assert sorted(said) == written
    assert [event["attempts"] for event in delivered] == [1, 1, 1]


def test_delivered_messages_have_no_line_otherwise(outbox: Outbox) -> None:
    outbox.configure()
    outbox.insert(3)
    with outbox.relay() as relay:
        outbox.wait_until_empty()
        assert not relay.events("message delivered")
