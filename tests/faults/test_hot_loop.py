"""Failing messages and empty tables do not make the relay spin."""

from __future__ import annotations

import time
from contextlib import ExitStack

from tests.harness.outbox import Outbox
from tests.servers.base import wait_until


def transactions(outbox: Outbox) -> int:
    """How many transactions the database has seen, as far as its statistics have them."""
    number: int = outbox.sql(
        "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()"
    )[0][0]
    return number


def test_a_full_batch_of_failures_follows_its_backoff(outbox: Outbox) -> None:
    outbox.configure(batch_messages=10, backoff={"base": "1s", "max": "1m"})
    outbox.broker.script(kinds={"bad": "retry"})
    with outbox.relay():
        bad = outbox.insert(10, kind="bad")
        time.sleep(5)
        inserted_at = time.time()
        good = outbox.insert(5)
        wait_until(lambda: set(outbox.broker.copies()) == set(good))
        assert max(delivery.at for delivery in outbox.broker.deliveries()) - inserted_at < 1.0
        time.sleep(5)
    tries = [outbox.broker.tries()[id] for id in bad]
    # Full jitter from 1, 2, 4, 8 s: after ten seconds four or five tries on average.
    assert 20 <= sum(tries) <= 80, tries
    assert len(outbox.broker.calls()) <= sum(tries) + 1


def test_idle_relays_poll_about_once_a_second(outbox: Outbox) -> None:
    outbox.configure()
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(outbox.relay())
        time.sleep(5)
        before = transactions(outbox)
        time.sleep(8)
        seen = transactions(outbox) - before
    # Each relay: a claim, two rounds of maintenance, a probe now and then.
    assert seen / 8 / 4 < 10, f"{seen} transactions in 8 s by 4 idle relays"
    assert seen / 8 / 4 > 0.5, "the relays did not look at all"


def test_a_broker_that_holds_everything_is_asked_more_and_more_rarely(outbox: Outbox) -> None:
    outbox.configure(batch_messages=10)
    outbox.broker.script(kinds={"made": "hold"})
    with outbox.relay():
        outbox.insert(30)
        time.sleep(8)
    # Probes after 0.25, 0.5, 1, 2, 4 s, with jitter down to the half.
    assert 4 <= len(outbox.broker.calls()) <= 10
    assert outbox.count("attempts = 0") == 30


def test_one_missing_destination_is_asked_more_and_more_rarely_while_others_flow(outbox: Outbox) -> None:
    outbox.configure(batch_messages=50)
    outbox.broker.script(kinds={"lost": {"do": "hold", "destination": "nowhere"}})
    with outbox.relay() as relay:
        held = outbox.insert(20, kind="lost")
        good = []
        for _ in range(40):
            good += outbox.insert(2)
            time.sleep(0.25)
        wait_until(lambda: outbox.broker.copies() == dict.fromkeys(good, 1))
        tries = [outbox.broker.tries()[id] for id in held]
        assert outbox.count("attempts = 0") == 20
        # After 1, 2, 4, 8 s, with jitter down to the half.
        assert max(tries) <= 6, tries
        assert [event["name"] for event in relay.events("destination is unavailable")] == ["nowhere"]
        outbox.broker.script()
        outbox.wait_until_empty(timeout=15)
