"""`relay reshard`, beside relays that run."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from functools import partial

import pytest

from tests.command import Command
from tests.harness.ordered import OrderedSink
from tests.harness.outbox import Outbox
from tests.servers.base import wait_until

CONFIGURATION = '[sinks.main]\ntype = "memory"\norder = "key"\nshards = 4\n\n[[routes]]\nkind = "*"\nsink = "main"\n'


def test_it_says_what_it_did_and_what_to_do(relay: Command, ordered: Callable[..., OrderedSink]) -> None:
    sink = ordered(shards=4)
    sink.insert(*[f"key-{number}" for number in range(100)])
    done = relay.run("reshard", "main", "9", "--yes")
    assert done.returncode == 0
    assert done.stdout.startswith('sink "main" has 9 shards; it had 4 shards; moved ')
    assert 'the configuration must say the same now: [sinks.main] order = "key", shards = 9' in done.stderr
    assert "restart" not in done.stderr
    again = {"sink": "main", "before": 9, "shards": 9, "moved": 0, "dry_run": False}
    assert relay.json("reshard", "main", "9", "--yes") == again
    refused = relay.run("apply")
    assert refused.returncode == 1
    assert "run: relay reshard main 4" in refused.stderr
    drained = relay.run("run", "--drain")
    assert drained.returncode == 0
    assert "sink has other shards in the database" in drained.stderr
    done = relay.run("reshard", "main", "0", "--yes")
    assert 'sink "main" has no order; it had 9 shards' in done.stdout
    assert 'order = "none"' in done.stderr
    assert "send each SIGHUP, or restart it" in done.stderr


def test_it_asks_and_shows_what_it_would_do(relay: Command, ordered: Callable[..., OrderedSink]) -> None:
    sink = ordered(shards=4)
    sink.insert("a", "b")
    plan = 'Sink "main" has 4 shards and 2 messages, and gets no order; nothing of it is delivered meanwhile'
    assert relay("reshard", "main", "0", "--dry-run") == f"{plan}. Nothing was changed.\n"
    planned = {"sink": "main", "before": 4, "shards": 0, "messages": 2, "dry_run": True}
    assert relay.json("reshard", "main", "0", "--dry-run") == planned
    refused = relay.run("reshard", "main", "0")
    assert refused.returncode == 1
    assert plan in refused.stderr
    assert sink.count("sinks", "shards = 4 and not resharding") == 1
    assert relay.run("reshard", "main", "2", stdin="y\n").returncode == 0
    assert relay.run("reshard", "mian", "2", "--dry-run").returncode == 2


@pytest.mark.parametrize("arguments", [["mian", "4"], ["main", "-1"], ["main", "1025"], ["main"]])
def test_wrong_usage(relay: Command, arguments: list[str]) -> None:
    relay("apply")
    assert relay.run("reshard", *arguments).returncode == 2


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_stopped_half_way_it_is_run_again(relay: Command, ordered: Callable[..., OrderedSink], stop: int) -> None:
    sink = ordered(shards=4)
    with sink.transaction() as writer:
        sink.insert(*[f"key-{number}" for number in range(100)], on=writer)
        process = relay.start("reshard", "main", "9", "--yes")
        wait_until(lambda: sink.count("sinks", "resharding"), timeout=20)
        process.send_signal(stop)
        _, stderr = process.communicate(timeout=20)
    if stop == signal.SIGINT:
        assert process.returncode == 130
        assert 'nothing is delivered to sink "main" until this has finished: run it again' in stderr
    assert sink.worker().claim(10) is None
    status = relay.json("status")["sinks"]["main"]
    assert status["paused"] == "its messages are being moved: relay reshard"
    assert relay.json("reshard", "main", "9", "--yes")["moved"] > 0
    assert relay.json("status")["sinks"]["main"]["paused"] is None
    sink.drain()
    assert len(sink.log) == 100


def test_relays_and_writers_go_on(outbox: Outbox, relay: Command) -> None:
    outbox.configure(order="key", shards=4, workers=2)
    outbox.broker.script(kinds={"made": "deliver", "shaky": {"do": "retry"}})
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            for key in range(20):
                outbox.insert(3, key=f"key-{key}")
            outbox.insert(1, key="key-7", kind="shaky", max_attempts=2)

    def more_than(number: int) -> bool:
        return len(outbox.broker.deliveries()) > number

    writer = threading.Thread(target=write)
    with outbox.relay(), outbox.relay():
        writer.start()
        try:
            for shards in ("16", "3", "64", "4"):
                assert relay.json("reshard", "main", shards, "--yes")["shards"] == int(shards)
                seen = len(outbox.broker.deliveries())
                wait_until(partial(more_than, seen + 100), timeout=30)
        finally:
            stop.set()
            writer.join()
        outbox.wait_until_empty(60)
    seen_of: dict[str | None, list[int]] = {}
    for delivery in outbox.broker.deliveries():
        seen_of.setdefault(delivery.key, []).append(delivery.id)
    for ids in seen_of.values():
        first_copies = list(dict.fromkeys(ids))
        assert first_copies == sorted(first_copies)


def test_a_running_relay_says_that_its_sink_was_changed(outbox: Outbox, relay: Command) -> None:
    outbox.configure(order="key", shards=4)
    with outbox.relay() as running:
        relay("reshard", "main", "0", "--yes")
        wait_until(lambda: running.events("sink is not served"), timeout=15)
