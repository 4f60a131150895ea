"""Many messages behind a queue that the service denies: what that costs, and what others of the sink notice.

The same could happen behind a missing topic or a stream of a wrong type, and with messages that are written meanwhile.
"""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

import pytest

from tests.harness.outbox import Outbox
from tests.servers.base import wait_until
from tests.servers.sqs_answers import Call, Fault
from tests.servers.sqs_stub import SqsStub

pytestmark = pytest.mark.full

MANY = 20_000
SAMPLES = 40


def updates(outbox: Outbox) -> int:
    outbox.sql("select pg_stat_force_next_flush()")
    number: int = outbox.sql("select pg_stat_get_tuples_updated('relay.outbox'::regclass)")[0][0]
    return number


def deny(call: Call) -> Fault | None:
    return Fault("AccessDenied", 403) if call.queue == "denied" else None


def fill(outbox: Outbox) -> None:
    outbox.sql(
        "insert into relay.outbox (kind, payload, headers)"
        " select 'made', to_json(n), '{\"queue\": \"denied\"}' from generate_series(1, %s) n",
        MANY,
    )


def median_latency(outbox: Outbox, stub: SqsStub) -> float:
    """Seconds from an insert to the arrival in another queue."""
    seconds = []
    for number in range(SAMPLES):
        started = time.monotonic()
        text = f"{time.time()} {number}"
        outbox.insert(1, payload=json.dumps(text), headers=json.dumps({"queue": "open"}))
        wait_until(lambda text=text: json.dumps(text) in stub.bodies("open"), interval=0.001)  # type: ignore[misc]
        seconds.append(time.monotonic() - started)
    return statistics.median(seconds)


@pytest.mark.parametrize("queue", ["denied", "{header.queue}"])
def test_a_denied_queue_costs_two_writes_a_row_and_a_call_a_probe(
    outbox: Outbox, sqs_stub: SqsStub, queue: str
) -> None:
    sqs_stub.on_send = deny
    sink: dict[str, Any] = {"type": "sqs", "queue": queue, "client": sqs_stub.client, "batch_messages": 1000}
    outbox.configure({"main": sink})
    with outbox.relay() as relay:
        alone = median_latency(outbox, sqs_stub) if queue != "denied" else 0.0
        before, called = updates(outbox), len(sqs_stub.sends())
        filled_at = time.monotonic()
        fill(outbox)
        wait_until(lambda: outbox.run_relay("status", "--check").returncode == 3, timeout=30)
        assert time.monotonic() - filled_at < 30
        if queue != "denied":
            wait_until(lambda: outbox.count("run_at = 'infinity'") >= MANY - 1, timeout=30)
        check = outbox.run_relay("status", "--check").stderr
        for words in ('destination "denied" is unavailable for ', "AccessDenied", "messages that wait: "):
            assert words in check
        probes = 8
        for _ in range(probes if queue != "denied" else 0):
            calls = len(sqs_stub.sends())
            outbox.sql("update relay.destinations set retry_at = now()")
            wait_until(lambda calls=calls: len(sqs_stub.sends()) > calls)  # type: ignore[misc]
        wait_until(lambda: outbox.count(table="claims") == 0)
        seconds, calls = time.monotonic() - filled_at, len(sqs_stub.sends()) - called
        if queue != "denied":
            # By itself a probe goes at most after 0.5, 1, 2, 4, 5, … seconds.
            assert calls <= 3 + probes + seconds / 2
            # The statistics may be late by what was sent before.
            assert updates(outbox) - before <= 2 * MANY + 3 * calls + 2 * SAMPLES
            waiting = [outbox.count("run_at is null"), median_latency(outbox, sqs_stub)]
            assert waiting[0] <= 1
            print("p50 alone", alone, "beside the denied queue", waiting[1])
            assert waiting[1] <= 3 * alone + 0.02, "by a wide margin, as the machine may be busy"
        else:
            assert calls <= 5 + seconds * 2
            assert updates(outbox) - before <= 2 * 1000 + 20 * calls
        assert outbox.count("attempts > 0 and claim_token is null") == 0
        assert relay.metric("relay_messages_total", outcome="dead") == 0
