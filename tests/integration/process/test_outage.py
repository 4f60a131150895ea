"""Brokers that are down, slow or hanging: nobody's attempts are used up, and other sinks go on."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from tests.harness.outbox import Outbox
from tests.servers.base import wait_until

pytestmark = pytest.mark.full


def circuits(outbox: Outbox) -> dict[str, str]:
    """What the one relay that runs says of its sinks."""
    ((said,),) = outbox.sql("select circuits from relay.relays")
    found: dict[str, str] = said
    return found


@pytest.mark.parametrize("place", ["open", "batch"])
@pytest.mark.parametrize("unknown", [True, False])
def test_an_outage_uses_up_no_attempts_and_ends_by_itself(outbox: Outbox, place: str, unknown: bool) -> None:
    outbox.configure(batch_messages=400, max_attempts=1)
    down = {"do": "unavailable", "reason": "nobody is there", "unknown": unknown}
    outbox.broker.script(**{place: down})
    with outbox.relay() as relay:
        ids = outbox.insert(1000)
        time.sleep(4)
        wait_until(lambda: circuits(outbox) == {"main": "nobody is there"})
        assert relay.ready(), "a broker that is down does not make the relay unready"
        assert outbox.count("attempts = 0 and claim_token is null") == 1000
        before = len(outbox.broker.calls())
        assert before <= 8, "probes must become rarer"
        outbox.broker.script()
        outbox.wait_until_empty(timeout=6)
        wait_until(lambda: circuits(outbox) == {})
        said = [event["event"] for event in relay.events() if event["event"].startswith("sink ")]
        assert said == ["sink is unwell", "sink works again"]
    assert outbox.broker.copies() == dict.fromkeys(ids, 1)
    after = [len(call.ids) for call in outbox.broker.calls()][before:]
    assert after[:4] == [10, 20, 40, 80], "a probe, then a ramp"


def test_a_probe_is_small_and_alone(outbox: Outbox) -> None:
    outbox.configure(batch_messages=100, workers=3)
    outbox.broker.script(batch={"do": "unavailable"})
    with outbox.relay():
        outbox.insert(500)
        wait_until(lambda: len(outbox.broker.calls()) >= 6)
    opened = outbox.broker.calls()[0].at
    probes = [call for call in outbox.broker.calls() if call.at > opened + 0.2]
    assert {len(call.ids) for call in probes} == {10}
    gaps = [later.at - earlier.at for earlier, later in pairwise(probes)]
    assert min(gaps) > 0.1, "one probe at a time"


def test_a_sink_that_hangs_costs_the_others_nothing(outbox: Outbox) -> None:
    routes = [{"kind": "*", "sink": "main"}, {"kind": "*", "sink": "other"}]
    outbox.configure({"main": {}, "other": {}}, routes=routes)
    outbox.broker.script(hang="main")
    with outbox.relay() as relay:
        outbox.insert(1)
        wait_until(lambda: len(outbox.broker.calls()) == 2)
        outbox.broker.forget()
        started = time.monotonic()
        ids = outbox.insert(300)
        wait_until(lambda: outbox.count("sink = 'other'") == 0, timeout=8)
        assert time.monotonic() - started < 6
        # Far beyond the lease, the hanging one still holds its claim.
        time.sleep(2.5)
        assert outbox.count(table="claims") == 1
        assert relay.metric("relay_lease_lost_total") == 0
        outbox.broker.script()
        outbox.wait_until_empty(timeout=15)
    assert len(outbox.broker.deliveries()) == 2 * len(ids) + 1


def test_a_revoked_claim_is_lost_without_a_second_sending(outbox: Outbox) -> None:
    outbox.configure(lease="1s", send_timeout="500ms")
    outbox.broker.script(batch="revoked")
    with outbox.relay() as relay:
        ids = outbox.insert(5)
        wait_until(lambda: relay.metric("relay_lease_lost_total") >= 1)
        outbox.broker.script()
        outbox.wait_until_empty(timeout=6)
    assert outbox.broker.copies() == dict.fromkeys(ids, 1)


def test_a_sink_whose_opening_raises_does_not_end_the_relay(outbox: Outbox) -> None:
    outbox.configure()
    outbox.broker.script(open="error")
    with outbox.relay() as relay:
        ids = outbox.insert(5)
        time.sleep(2.5)
        assert relay.healthy()
        outbox.broker.script(open="escape")
        time.sleep(2.5)
        assert relay.healthy()
        outbox.broker.script()
        outbox.wait_until_empty(timeout=6)
    assert outbox.broker.copies() == dict.fromkeys(ids, 1)


def test_an_outage_whose_reason_no_database_takes_stops_nothing(outbox: Outbox) -> None:
    outbox.configure({"main": {}, "other": {}})
    outbox.broker.script(batch={"do": "unavailable", "reason": "odd \x00 and \ud800 and " + "long " * 100_000})
    with outbox.relay() as relay:
        outbox.insert(5)
        wait_until(outbox.broker.calls)
        wait_until(lambda: "odd" in circuits(outbox).get("main", ""))
        assert relay.events("maintenance failed") == []
        outbox.broker.script()
        outbox.wait_until_empty(timeout=6)
        assert max(len(line) for line in relay.server.log.read_text().splitlines()) < 5000
