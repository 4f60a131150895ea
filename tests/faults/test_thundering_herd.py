"""A broker that is down and comes back slow: probed by few, not run over, and nobody's attempt is used up."""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import ExitStack
from itertools import pairwise

from tests.harness.outbox import Outbox
from tests.harness.scripted import Call
from tests.servers.base import wait_until

RELAYS = 3
OUTAGE_S = 4.0


def transactions(outbox: Outbox) -> int:
    count: int = outbox.sql("select xact_commit from pg_stat_database where datname = current_database()")[0][0]
    return count


def test_a_broker_that_comes_back_is_not_run_over(outbox: Outbox) -> None:
    outbox.configure(batch_messages=200, lease="20s", send_timeout="5s", keep_data=False)
    outbox.broker.script(batch="unavailable")
    with ExitStack() as stack:
        relays = [stack.enter_context(outbox.relay()) for _ in range(RELAYS)]
        ids = outbox.insert(1000)
        wait_until(lambda: len({call.pid for call in outbox.broker.calls()}) == RELAYS)
        outbox.broker.forget()
        before, started = transactions(outbox), time.monotonic()
        time.sleep(OUTAGE_S)
        elapsed = time.monotonic() - started
        probes = outbox.broker.calls()
        assert all(len(call.ids) <= 10 for call in probes), "a probe is small"
        assert RELAYS <= len(probes) <= RELAYS * 12
        assert (transactions(outbox) - before) / elapsed < RELAYS * 30
        assert outbox.count("attempts > 0 and claim_token is null") == 0
        outbox.broker.forget()
        outbox.broker.script(each=0.005)
        outbox.wait_until_empty(timeout=25)
        assert [event for relay in relays for event in relay.events("claim reaped")] == []
    by_relay: defaultdict[int, list[Call]] = defaultdict(list)
    for call in outbox.broker.calls():
        by_relay[call.pid].append(call)
    for calls in by_relay.values():
        sizes = [len(call.ids) for call in calls]
        assert sizes[0] <= 10
        assert all(after <= 2 * max(10, *sizes[: index + 1]) for index, (_, after) in enumerate(pairwise(sizes)))
    assert outbox.broker.copies() == dict.fromkeys(ids, 1)
    assert {delivery.attempts for delivery in outbox.broker.deliveries()} == {1}


def test_what_fails_together_does_not_come_back_together(outbox: Outbox) -> None:
    outbox.configure(batch_messages=1000, backoff={"base": "100s", "max": "100s"})
    outbox.broker.script(kinds={"made": "retry"})
    with outbox.relay():
        outbox.insert(1000)
        wait_until(lambda: outbox.count("run_at is not null") == 1000)
    buckets = outbox.sql("select count(*) from relay.outbox group by extract(epoch from run_at)::bigint / 5 order by 1")
    assert len(buckets) >= 20
    # 50 are to be expected in every five seconds.
    assert buckets[-1][0] < 100
