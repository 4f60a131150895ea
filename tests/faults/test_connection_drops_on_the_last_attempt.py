"""The database goes away around a message's last attempt: it ends delivered or dead, never claimed for ever."""

from __future__ import annotations

import psycopg
import pytest

from tests.harness.outbox import Outbox
from tests.servers.base import wait_until
from tests.servers.proxy import Direction, FaultProxy


@pytest.mark.parametrize("answer", ["deliver", "retry"])
def test_sessions_end_during_the_last_attempt(outbox: Outbox, answer: str) -> None:
    outbox.configure(batch_messages=1)
    outbox.broker.script(hang=True, kinds={"last": answer})
    with outbox.relay() as relay:
        (last,) = outbox.insert(kind="last", max_attempts=1, key="k1")
        wait_until(outbox.broker.calls)
        assert outbox.end_sessions() >= 3
        outbox.broker.script(kinds={"last": answer})
        outbox.wait_until_empty(timeout=5)
        others = outbox.insert(2, key="k1")
        outbox.wait_until_empty(timeout=5)
        assert relay.metric("relay_lease_lost_total") == 0
    dead = [] if answer == "deliver" else [(last, 1)]
    assert outbox.sql("select id, attempts from relay.dead") == dead
    assert outbox.broker.tries() == dict.fromkeys([last, *others], 1)


def waits_for_a_lock(outbox: Outbox) -> bool:
    return bool(
        outbox.sql(
            "select 1 from pg_stat_activity where datname = current_database()"
            " and application_name like 'outbox-relay main%%' and wait_event_type = %s",
            "Lock",
        )
    )


def test_a_claim_whose_answer_was_lost_costs_no_attempt(outbox: Outbox) -> None:
    """The claim was committed, and its relay never heard of it: nobody tried to send."""
    outbox.configure(lease="2s", database={"notify": False})
    with FaultProxy.before(outbox.url) as proxy, psycopg.connect(outbox.url) as blocker:
        with outbox.relay(url=proxy.url(outbox.url)):
            # By then the claim is prepared: what waits for the lock is its execution.
            ids = outbox.insert(1)
            outbox.wait_until_empty()
            blocker.execute("lock table relay.claims in share mode")
            ids += outbox.insert(3, max_attempts=1)
            wait_until(lambda: waits_for_a_lock(outbox))
            proxy.stall(Direction.TO_CLIENT)
            blocker.commit()
            wait_until(lambda: outbox.count(table="claims") == 1)
            proxy.cut()
            proxy.resume()
            outbox.wait_until_empty(timeout=10)
    assert outbox.count(table="dead") == 0, "dead without a single try"
    assert outbox.broker.copies() == dict.fromkeys(ids, 1)


def test_a_settle_whose_answer_was_lost_is_not_sent_again(outbox: Outbox) -> None:
    outbox.configure(lease="2s", database={"notify": False})
    outbox.broker.script(hang=True)
    outbox.sql(
        "create function wait() returns trigger language plpgsql as"
        " $$begin perform pg_advisory_xact_lock_shared(42); return null; end$$"
    )
    outbox.sql(
        "create constraint trigger wait after delete on relay.claims deferrable initially deferred"
        " for each row execute function wait()"
    )
    with FaultProxy.before(outbox.url) as proxy, psycopg.connect(outbox.url) as blocker:
        with outbox.relay(url=proxy.url(outbox.url)):
            ids = outbox.insert(3)
            wait_until(outbox.broker.calls)
            blocker.execute("select pg_advisory_xact_lock(42)")
            outbox.broker.script()
            wait_until(lambda: waits_for_a_lock(outbox))
            proxy.stall(Direction.TO_CLIENT)
            blocker.commit()
            outbox.wait_until_empty()
            proxy.cut()
            proxy.resume()
            later = outbox.insert(2)
            outbox.wait_until_empty(timeout=5)
    assert outbox.broker.tries() == dict.fromkeys(ids + later, 1)
