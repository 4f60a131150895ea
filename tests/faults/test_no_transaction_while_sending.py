"""No transaction is open while the broker is talked to."""

from __future__ import annotations

import time

from tests.harness.outbox import Outbox


def test_a_slow_broker_pins_no_transaction(outbox: Outbox) -> None:
    database = outbox.url.rpartition("/")[2]
    outbox.sql(f"alter database {database} set idle_in_transaction_session_timeout = '1s'")
    outbox.configure(batch_messages=10)
    outbox.broker.script(delay=3.0)
    oldest = 0.0
    with outbox.relay() as relay:
        ids = outbox.insert(20)
        sessions = set()
        deadline = time.monotonic() + 12
        while not outbox.is_empty() and time.monotonic() < deadline:
            for pid, age in outbox.sql(
                "select pid, coalesce(extract(epoch from clock_timestamp() - xact_start), 0)::float8"
                " from pg_stat_activity where datname = current_database() and application_name like 'outbox-relay%'"
            ):
                sessions.add(pid)
                oldest = max(oldest, age)
            time.sleep(0.05)
        assert outbox.is_empty()
        assert relay.events("database refused") == []
    assert oldest < 0.5
    # One for each: worker, heartbeat, maintenance, listener; and the one of the start.
    assert len(sessions) <= 5, "a connection was lost on the way"
    assert outbox.broker.copies() == dict.fromkeys(ids, 1)
