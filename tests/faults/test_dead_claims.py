"""The claim of a relay that is gone: another one, of the same name or not, gets its messages after one lease."""

from __future__ import annotations

import time

import pytest

from tests.harness.outbox import Outbox
from tests.servers.base import wait_until

LEASE_S = 2.0
TICK_S = 1.0


def test_a_restart_under_the_same_name_waits_no_longer_than_the_lease(outbox: Outbox) -> None:
    outbox.configure(lease="2s", batch_messages=1, workers=1)
    outbox.broker.script(hang=True)
    with outbox.relay() as first:
        ids = outbox.insert(2)
        wait_until(outbox.broker.calls)
        claims = outbox.sql("select worker from relay.claims")
        first.kill()
        killed_at = time.monotonic()
    outbox.broker.script()
    with outbox.relay():
        due_at = max(killed_at + LEASE_S + TICK_S, time.monotonic())
        wait_until(lambda: outbox.broker.copies() == dict.fromkeys(ids, 1))
        outbox.wait_until_empty()
        assert time.monotonic() < due_at + 5
        now = outbox.sql("select worker from relay.relays order by started_at desc limit 1")
    host, _, rest = claims[0][0].partition(":")
    assert now[0][0].startswith(f"{host}:")
    assert rest.split(":")[1] not in now[0][0], "a restart must not look like its predecessor"


def test_a_message_that_kills_its_process_runs_out_of_attempts_alone(outbox: Outbox) -> None:
    outbox.configure(lease="500ms", send_timeout="100ms", max_attempts=4)
    outbox.broker.script(kinds={"poison": "exit"}, delay=0.05)
    good = outbox.insert(8)
    (poison,) = outbox.insert(kind="poison")
    good += outbox.insert(8)
    for _ in range(8):
        with outbox.relay() as relay:
            wait_until(lambda: relay.server.process.poll() is not None or outbox.is_empty(), timeout=8)
            if outbox.is_empty():
                break
    else:
        pytest.fail("relays go on dying")
    assert outbox.sql("select id, attempts from relay.dead") == [(poison, 4)]
    assert set(outbox.broker.copies()) == set(good)
    assert len([call for call in outbox.broker.calls() if poison in call.ids]) == 4
    assert [call.ids for call in outbox.broker.calls() if poison in call.ids][2:] == [[poison]] * 2


def test_a_crash_frees_exactly_what_its_claim_held(outbox: Outbox) -> None:
    outbox.configure(lease="1s", send_timeout="500ms", batch_messages=5)
    outbox.broker.script(hang=True)
    with outbox.relay() as victim, outbox.relay() as survivor:
        ids = outbox.insert(10)
        wait_until(lambda: len(outbox.broker.calls()) == 2)
        theirs = {call.pid: call for call in outbox.broker.calls()}
        victim.kill()
        wait_until(lambda: survivor.metric("relay_reaped_total") == 5)
        free = outbox.sql("select id, prior_tokens::text[] from relay.outbox where claim_token is null order by id")
        assert free == [(id, [theirs[victim.pid].token]) for id in theirs[victim.pid].ids]
        outbox.broker.script()
        outbox.wait_until_empty()
    assert outbox.broker.copies() == dict.fromkeys(ids, 1)
