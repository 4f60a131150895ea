"""A slow relay and a quick one share the keys: no key is split between them, and a frozen one delays only its own."""

from __future__ import annotations

import signal
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from tests.harness.outbox import Outbox
from tests.harness.scripted import Delivery, ScriptedBroker
from tests.servers.base import wait_until

RUNS = 25
OTHERS = [f"other-{number}" for number in range(20)]


def beside(outbox: Outbox) -> Outbox:
    """The same database, with a broker folder of its own: what its relay is told, no other relay hears."""
    folder: Path = outbox.folder / "slow"
    folder.mkdir()
    return Outbox(outbox.url, outbox.folder, ScriptedBroker(folder))


def first_copies(deliveries: Sequence[Delivery]) -> dict[str | None, list[int]]:
    """By key, in the order of their time."""
    found: defaultdict[str | None, dict[int, None]] = defaultdict(dict)
    for delivery in sorted(deliveries, key=lambda delivery: delivery.at):
        found[delivery.key].setdefault(delivery.id)
    return {key: list(ids) for key, ids in found.items()}


def write(outbox: Outbox) -> None:
    for number in range(10):
        outbox.insert(key="k1")
        outbox.insert(key=OTHERS[2 * number])
        outbox.insert(key=OTHERS[2 * number + 1])


def test_every_key_rises_in_every_run(outbox: Outbox) -> None:
    slow = beside(outbox)
    outbox.configure(order="key", shards=16, batch_messages=5)
    slow.configure(order="key", shards=16, batch_messages=5, applied=False)
    slow.broker.script(delay=0.2)
    with slow.relay(timeout=60), outbox.relay(timeout=60):
        for _ in range(RUNS):
            write(outbox)
            outbox.wait_until_empty()
    deliveries = outbox.broker.deliveries() + slow.broker.deliveries()
    assert outbox.broker.deliveries()
    assert slow.broker.deliveries(), "the slow relay has to take part"
    assert len(deliveries) == RUNS * 30
    for ids in first_copies(deliveries).values():
        assert ids == sorted(ids)


def test_a_relay_that_is_frozen_for_good_delays_only_its_own_keys(outbox: Outbox) -> None:
    slow = beside(outbox)
    outbox.configure(order="key", shards=16, batch_messages=5)
    slow.configure(order="key", shards=16, batch_messages=5, applied=False)
    slow.broker.script(hang=True)
    with slow.relay(timeout=60) as frozen:
        write(outbox)
        wait_until(slow.broker.calls)
        frozen.signal(signal.SIGSTOP)
        held = {row[0] for row in outbox.sql("select unnest(shards) from relay.claims")}
        theirs = {
            row[0] for row in outbox.sql("select distinct key from relay.outbox where shard = any(%s)", list(held))
        }
        assert theirs
        with outbox.relay(timeout=60):
            wait_until(lambda: {d.key for d in outbox.broker.deliveries()} >= {"k1", *OTHERS} - theirs)
            outbox.wait_until_empty(timeout=15)
            frozen.kill()
    for ids in first_copies(outbox.broker.deliveries()).values():
        assert ids == sorted(ids)
    assert len(outbox.broker.copies()) == 30
