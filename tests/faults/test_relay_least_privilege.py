"""A relay whose role has the rights of relay_worker and no other; and what it says when one is taken away."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from tests.harness.outbox import Outbox
from tests.servers.base import wait_until


@pytest.fixture
def role(outbox: Outbox) -> Iterator[str]:
    name = f"worker_{outbox.url.rpartition('_')[2]}"
    outbox.sql(f"create role {name} login in role relay_worker")
    yield name
    outbox.sql(f"drop role {name}")


@pytest.mark.parametrize("order", ["none", "key"])
def test_a_right_that_is_taken_away_and_given_back(outbox: Outbox, role: str, order: str) -> None:
    outbox.configure(order=order, lease="20s", send_timeout="5s")
    outbox.broker.script(hang=True, kinds={"made": "retry"})
    with outbox.relay(url=re.sub(r"//[^@]*@", f"//{role}@", outbox.url)) as relay:
        ids = outbox.insert(10, key="k")
        wait_until(outbox.broker.calls)
        outbox.sql("revoke update on relay.outbox from relay_worker")
        outbox.broker.script()
        outbox.broker.script(kinds={"made": "retry"})
        wait_until(lambda: not relay.ready(), timeout=5)
        later = outbox.insert(10, key="k")
        time.sleep(2)
        assert relay.healthy()
        assert len(outbox.broker.calls()) == 1, "what cannot be settled must not be sent again"
        (refused,) = relay.events("database refused")
        assert "permission denied for table outbox" in refused["reason"]
        assert "grant relay_worker" in refused["reason"]
        outbox.broker.script()
        outbox.sql("grant update on relay.outbox to relay_worker")
        wait_until(relay.ready, timeout=10)
        outbox.wait_until_empty()
    assert outbox.broker.copies() == dict.fromkeys(ids + later, 1)
