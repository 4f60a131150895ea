"""A destination of a sink that is unavailable: what waits for it, what that costs, and what operators see.

The same could happen with any group of messages that waits for one thing: keys of an ordered sink, messages without
a key there, a destination that fails again while its messages are let go, one whose name is long or odd, a relay that
was started later and finds it unavailable, a row that is moved while it waits.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.harness.outbox import Outbox
from tests.servers.base import wait_until

BATCH = 200
HELD = {"do": "hold", "destination": "queue-1", "reason": "denied: AccessDenied"}


def configure(outbox: Outbox, **keys: Any) -> None:
    """A sink whose messages go to queues that their kinds decide."""
    named = {"destinations": {"lost": "queue-1", "made": "queue-2"}}
    outbox.configure(batch_messages=BATCH, **{**named, **keys})


def updates(outbox: Outbox) -> int:
    """How many rows of the outbox were ever rewritten."""
    outbox.sql("select pg_stat_force_next_flush()")
    number: int = outbox.sql("select pg_stat_get_tuples_updated('relay.outbox'::regclass)")[0][0]
    return number


def parked(outbox: Outbox) -> int:
    return outbox.count("run_at = 'infinity' and destination = 'queue-1' and attempts = 0 and claim_token is null")


def next_probe(outbox: Outbox) -> None:
    """The time of the next probe has come; wait until it failed or was delivered."""
    before = len(outbox.broker.calls())
    outbox.sql("update relay.destinations set retry_at = now()")
    wait_until(lambda: len(outbox.broker.calls()) > before, what="the probe")


def test_what_waits_costs_a_probe_a_step_and_two_writes_a_row(outbox: Outbox) -> None:
    configure(outbox)
    outbox.broker.script(kinds={"lost": HELD})
    ids = outbox.insert(3000, kind="lost")
    before = updates(outbox)
    with outbox.relay():
        wait_until(lambda: parked(outbox) >= 2999)
        first = len(outbox.broker.calls())
        assert first <= 3, "once it is known, nothing is sent but probes"
        for _ in range(6):
            next_probe(outbox)
        new = outbox.insert(300, kind="lost")
        wait_until(lambda: parked(outbox) >= 3299)
        calls = len(outbox.broker.calls())
        assert calls <= first + 6 + 3
        ((failures, wait),) = outbox.sql(
            "select failures, extract(epoch from retry_at - now())::float8 from relay.destinations"
        )
        assert failures > 3
        assert wait <= 60
        outbox.broker.script()
        outbox.wait_until_empty(timeout=15)
        assert outbox.count(table="destinations") == 0
    # Each row: claimed, parked, let go, claimed; each probe: let go, claimed, parked.
    assert updates(outbox) - before <= 4 * (len(ids) + len(new)) + 3 * calls
    assert outbox.broker.copies() == dict.fromkeys([*ids, *new], 1)


def test_what_is_let_go_grows_and_what_fails_again_waits_again(outbox: Outbox) -> None:
    configure(outbox)
    outbox.broker.script(kinds={"lost": HELD})
    with outbox.relay():
        ids = outbox.insert(1000, kind="lost")
        wait_until(lambda: parked(outbox) >= 999)
        outbox.broker.forget()
        outbox.broker.script(each=0.005)
        wait_until(lambda: len(outbox.broker.deliveries()) >= 60, interval=0.01)
        outbox.broker.script(kinds={"lost": HELD})
        wait_until(lambda: parked(outbox) == outbox.count())
        sizes = [len(call.ids) for call in outbox.broker.calls()]
        while sizes[0] == 1:
            sizes.pop(0)
        assert sizes[0] <= 10
        outbox.broker.script()
        outbox.wait_until_empty(timeout=15)
    assert outbox.broker.copies() == dict.fromkeys(ids, 1)


def test_ordered_keys_wait_for_a_destination_and_keep_their_order(outbox: Outbox) -> None:
    """Keys are probed one at a time, too; messages without a key are parked like those of a sink without order."""
    configure(outbox, order="key", shards=4)
    outbox.broker.script(kinds={"lost": HELD})
    with outbox.relay():
        outbox.sql(
            "insert into relay.outbox (kind, key, payload) select case when n % 3 = 0 then 'made' else 'lost' end,"
            " 'k' || n % 100, to_json(n) from generate_series(1, 600) n"
        )
        outbox.insert(50, kind="lost")
        wait_until(lambda: outbox.count("run_at is null") <= 1 and outbox.count(table="claims") == 0)
        assert outbox.sql("select distinct destination from relay.stuck_keys where retry_at > now()") == [("queue-1",)]
        outbox.broker.forget()
        for _ in range(3):
            next_probe(outbox)
        assert sum(outbox.broker.tries().values()) <= 6, "a probe is one message, whatever the number of keys"
        outbox.broker.script()
        outbox.wait_until_empty(timeout=30)
        wait_until(lambda: outbox.count(table="stuck_keys") + outbox.count(table="destinations") == 0)
    by_key: dict[str, list[int]] = {}
    for delivery in outbox.broker.deliveries():
        if delivery.key is not None:
            by_key.setdefault(delivery.key, []).append(delivery.id)
    assert all(ids == sorted(ids) for ids in by_key.values())
    assert set(outbox.broker.copies().values()) == {1}


def test_operators_see_destination_reason_age_and_number(outbox: Outbox) -> None:
    configure(outbox)
    outbox.broker.script(kinds={"lost": HELD})
    with outbox.relay() as relay:
        outbox.insert(20, kind="lost")
        outbox.insert(1)
        wait_until(lambda: outbox.run_relay("status", "--check").returncode == 3, timeout=30)
        check = outbox.run_relay("status", "--check")
        for words in ("queue-1", "denied: AccessDenied", "messages that wait: ", "unavailable for "):
            assert words in check.stderr
        assert "20 messages waiting" in check.stdout or "19 messages waiting" in check.stdout
        seen: Callable[[], Any] = lambda: json.loads(outbox.run_relay("status", "--json").stdout)["sinks"]["main"]  # noqa: E731
        wait_until(lambda: seen()["circuit"] == "closed", what="others being delivered")
        assert seen()["unavailable"]["queue-1"]["waiting"] >= 19
        labels = {"sink": "main", "destination": "queue-1", "reason": "denied: AccessDenied"}
        wait_until(lambda: relay.metric("relay_destination_waiting_messages", **labels) >= 19, timeout=30)
        assert relay.metric("relay_destination_unavailable_seconds", sink="main") > 0
        wait_until(lambda: relay.events("messages wait for an unavailable destination"), timeout=30)
        (event, *_) = relay.events("messages wait for an unavailable destination")
        assert (event["name"], event["reason"], event["waiting"] >= 19) == ("queue-1", HELD["reason"], True)
        outbox.broker.script()
        outbox.wait_until_empty(timeout=15)
        wait_until(lambda: outbox.run_relay("status", "--check").returncode == 0)
        assert relay.events("destination works again")


@pytest.mark.parametrize("sole", [True, False])
def test_a_sink_of_which_nothing_is_delivered_has_an_open_circuit(outbox: Outbox, sole: bool) -> None:
    """Whether the sink knows that it has only this destination, or it is just the only one that messages go to."""
    configure(outbox, **({"sole": "queue-1"} if sole else {}))
    outbox.broker.script(kinds={"lost": HELD})
    with outbox.relay() as relay:
        ids = outbox.insert(1000, kind="lost")
        circuits: Callable[[], Any] = lambda: outbox.sql("select circuits from relay.relays")[0][0]  # noqa: E731
        wait_until(lambda: circuits() == {"main": "queue-1: denied: AccessDenied"})
        check = outbox.run_relay("status", "--check")
        assert check.returncode == 3
        assert "open: queue-1: denied" in check.stdout
        assert "1,000 messages waiting" in check.stdout or "999 messages waiting" in check.stdout
        calls = len(outbox.broker.calls())
        assert calls <= 8
        outbox.broker.script()
        outbox.wait_until_empty(timeout=15)
        wait_until(lambda: circuits() == {})
        assert outbox.count(table="destinations") == 0
        assert relay.metric("relay_messages_total", outcome="dead") == 0
    assert outbox.broker.copies() == dict.fromkeys(ids, 1)


@pytest.mark.parametrize("order", ["none", "key"])
def test_drain_waits_for_a_destination_and_says_so(outbox: Outbox, order: str) -> None:
    configure(outbox, order=order, **({"shards": 4} if order == "key" else {}))
    outbox.broker.script(kinds={"lost": HELD})
    outbox.insert(5, kind="lost", key="k")
    with outbox.relay("--drain", wait=False) as relay:
        wait_until(lambda: relay.events("waiting for an unavailable destination"))
        (event,) = relay.events("waiting for an unavailable destination")
        assert (event["name"], event["reason"]) == ("queue-1", HELD["reason"])
        assert relay.server.process.poll() is None
        outbox.broker.script()
        assert relay.exit_code(20) == 0
    assert len(outbox.broker.copies()) == 5


def test_a_relay_that_starts_later_sends_nothing_but_probes(outbox: Outbox) -> None:
    configure(outbox)
    outbox.broker.script(kinds={"lost": HELD})
    with outbox.relay():
        outbox.insert(5, kind="lost")
        wait_until(lambda: parked(outbox) == 5)
    outbox.sql("update relay.destinations set retry_at = now() + interval '1 hour'")
    with outbox.relay():
        wait_until(lambda: outbox.count("seen_at is not null", table="relays") == 1)
        outbox.broker.forget()
        (made,) = outbox.insert(1)
        wait_until(lambda: set(outbox.broker.copies()) == {made})
        outbox.insert(5, kind="lost")
        wait_until(lambda: parked(outbox) == 10)
        assert list(outbox.broker.tries()) == [made]


def test_a_name_may_be_anything(outbox: Outbox) -> None:
    odd = "queue \x00 \ud800 ' % {} " + "long " * 5000
    configure(outbox, destinations={})
    outbox.broker.script(kinds={"lost": {"do": "hold", "destination": odd, "reason": ""}})
    with outbox.relay() as relay:
        outbox.insert(5, kind="lost")
        wait_until(lambda: outbox.count("run_at = 'infinity'") >= 4)
        wait_until(lambda: relay.metric("relay_destination_waiting_messages", sink="main") >= 4, timeout=30)
        assert outbox.run_relay("status", "--check").returncode == 3
        outbox.broker.script()
        outbox.wait_until_empty(timeout=15)


def test_parked_messages_that_somebody_moves_are_not_forgotten(outbox: Outbox) -> None:
    outbox.configure({"main": {}, "other": {}}, batch_messages=BATCH)
    outbox.broker.script(kinds={"lost": HELD})
    with outbox.relay():
        outbox.insert(5, kind="lost")
        wait_until(lambda: parked(outbox) >= 4)
    outbox.sql("update relay.outbox set sink = 'other'")
    outbox.broker.script()
    with outbox.relay():
        outbox.wait_until_empty(timeout=15)
        wait_until(lambda: outbox.count(table="destinations") == 0)
    assert {delivery.sink for delivery in outbox.broker.deliveries()} == {"other"}
