"""Claims that cannot be settled: operators hear of it, and it ends by itself.

The same could happen with a trigger of the application's, a read-only database, a constraint that somebody added, a
disk that is full, or claims that no relay can end.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.outbox import Outbox
from tests.servers.base import wait_until

REFUSE = """
create function public.refuse() returns trigger language plpgsql as $$ begin raise 'not today'; end $$;
create trigger refuse before delete on relay.outbox for each row execute function public.refuse();
"""


@pytest.mark.parametrize("order", ["none", "key"])
def test_what_the_database_refuses_is_found_until_it_takes_it(outbox: Outbox, order: str) -> None:
    shards: dict[str, Any] = {"shards": 2} if order == "key" else {}
    outbox.configure(order=order, **shards)
    outbox.sql(REFUSE)
    with outbox.relay(wait=False) as relay:
        ids = outbox.insert(5, key="k")
        wait_until(lambda: relay.metric("relay_unsettled_claims", sink="main") == 1)
        wait_until(lambda: outbox.run_relay("status", "--check").returncode == 3, timeout=30)
        check = outbox.run_relay("status", "--check")
        assert "claims cannot be settled" in check.stderr
        assert "not today" in check.stderr
        assert len(outbox.broker.calls()) == 1, "what was sent is settled, never sent again"
        outbox.sql("drop trigger refuse on relay.outbox")
        outbox.wait_until_empty(timeout=20)
        wait_until(lambda: relay.metric("relay_unsettled_claims", sink="main") == 0)
        wait_until(lambda: outbox.run_relay("status", "--check").returncode == 0)
    assert outbox.broker.copies() == dict.fromkeys(ids, 1)


def test_claims_that_nobody_ends_and_a_read_only_database_are_found(outbox: Outbox) -> None:
    outbox.configure()
    outbox.sql(
        "insert into relay.claims (token, sink, worker, claimed_at, locked_until, ids)"
        " values (gen_random_uuid(), 'main', 'gone', now(), now() - interval '1 minute', '{1}')"
    )
    check = outbox.run_relay("status", "--check")
    assert check.returncode == 3
    assert "claims that ran out and are not ended: 1" in check.stderr
    outbox.sql("delete from relay.claims")
    outbox.sql(
        "do $$ begin execute format('alter database %I set default_transaction_read_only = on',"
        " current_database()); end $$"
    )
    check = outbox.run_relay("status", "--check")
    assert check.returncode == 3
    assert "the database is read-only" in check.stderr


def test_a_sink_that_is_broken_from_the_start_has_its_series(outbox: Outbox) -> None:
    outbox.configure()
    outbox.broker.script(open={"do": "unavailable"})
    with outbox.relay() as relay:
        metrics = relay.get("metrics")
        for outcome in ("delivered", "retried", "held", "dead"):
            assert f'relay_messages_total{{outcome="{outcome}",sink="main"}} 0.0' in metrics
        assert 'relay_send_seconds_count{sink="main"} 0.0' in metrics


def test_only_an_answer_of_the_broker_closes_a_circuit(outbox: Outbox) -> None:
    """One worker's message gets no answer; the others find nothing to do, which says nothing of the broker."""
    outbox.configure(workers=3, lease="4s")
    outbox.broker.script(kinds={"made": "deliver"}, batch={"do": "unavailable", "reason": "no answer", "unknown": True})
    with outbox.relay() as relay:
        outbox.insert(1)
        wait_until(lambda: relay.events("sink is unwell"))
        wait_until(lambda: len(outbox.broker.calls()) >= 4)
        assert relay.events("sink works again") == []
        assert outbox.run_relay("status", "--check").returncode == 3
        outbox.broker.script()
        outbox.wait_until_empty()
        wait_until(lambda: relay.events("sink works again"))
