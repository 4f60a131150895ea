"""Other isolation levels, other lock orders: retried without sending again."""

from __future__ import annotations

import random
import threading
from contextlib import ExitStack

import psycopg
from psycopg import errors

from tests.harness.outbox import Outbox
from tests.servers.base import wait_until


def test_a_stricter_default_isolation_changes_nothing(outbox: Outbox) -> None:
    database = outbox.url.rpartition("/")[2]
    outbox.sql(f"alter database {database} set default_transaction_isolation = 'serializable'")
    outbox.configure(batch_messages=50)
    outbox.broker.script(kinds={"bad": "retry"})
    with ExitStack() as stack:
        relays = [stack.enter_context(outbox.relay()) for _ in range(3)]
        ids = outbox.insert(2000)
        outbox.insert(60, kind="bad", max_attempts=3)
        outbox.wait_until_empty(timeout=20)
        assert [event for relay in relays for event in relay.events() if event["level"] == "error"] == []
        assert sum(relay.metric("relay_lease_lost_total") for relay in relays) == 0
    assert outbox.broker.copies() == dict.fromkeys(ids, 1)
    assert outbox.count("attempts = 3", table="dead") == 60


def test_sessions_that_lock_in_another_order_cost_no_second_sending(outbox: Outbox) -> None:
    outbox.configure(batch_messages=50, backoff={"base": "50ms", "max": "200ms"}, lease="10s")
    outbox.broker.script(kinds={"bad": "retry"}, each=0.002)
    done = threading.Event()

    def disturb(seed: int) -> None:
        shuffled = random.Random(seed)
        with psycopg.connect(outbox.url, autocommit=True) as connection:
            connection.execute("set deadlock_timeout = '50ms'")
            while not done.is_set():
                ids = shuffled.sample(range(1, 1500), 20)
                try:
                    with connection.transaction():
                        for id in ids:
                            connection.execute("update relay.outbox set headers = '{}' where id = %s", [id])
                except (errors.DeadlockDetected, errors.SerializationFailure):
                    continue

    with ExitStack() as stack:
        relays = [stack.enter_context(outbox.relay()) for _ in range(2)]
        ids = outbox.insert(1500)
        outbox.insert(30, kind="bad", max_attempts=3)
        threads = [threading.Thread(target=disturb, args=[seed]) for seed in range(2)]
        for thread in threads:
            thread.start()
        try:
            wait_until(lambda: outbox.count("kind = 'made'") < 100, timeout=25)
        finally:
            done.set()
            for thread in threads:
                thread.join()
        outbox.wait_until_empty()
        assert all(relay.healthy() for relay in relays)
    assert outbox.broker.copies() == dict.fromkeys(ids, 1)
    assert outbox.count("attempts = 3", table="dead") == 30
