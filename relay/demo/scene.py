"""The demo from beginning to end.

1. servers of its own, `relay migrate`, `relay apply`, twice `relay run`;
2. several connections write; every so manyth transaction is rolled back;
3. half-way one relay is killed in the middle of a batch; the other one takes over what it held;
4. once the queue is empty, the brokers are asked what they hold.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from relay.admin.status import read_status
from relay.config.settings import Route, load
from relay.database.connection import Database
from relay.demo import relays, servers
from relay.demo.brokers import Broker, connected
from relay.demo.count import add_up, messages_for, report
from relay.demo.display import Display, display
from relay.demo.processes import end, wait_for
from relay.demo.relays import Relay
from relay.demo.writers import Transaction, plan, writing
from relay.errors import RelayError
from relay.process.store import Store

WRITTEN: Final = "written"
CAUGHT_IN: Final = {"stream", "jobs"}
"""Sinks in whose batch the relay is killed."""
VICTIMS_SINKS: Final = ("stream", "jobs", "sqs")
"""Not kafka: what a killed relay has produced there may be produced again, and the mock cluster has no transactions
that could hide the first copy."""
LONGEST_S: Final = 90.0
LOOK_S: Final = 0.1


@dataclass(frozen=True)
class Scene:
    """Everything that runs."""

    url: str
    """Of the database."""
    database: Database
    routes: Sequence[Route]
    brokers: Mapping[str, Broker]
    victim: Relay
    heir: Relay
    transactions: Sequence[Transaction]

    def messages(self, sink: str, *, rolled_back: bool = False) -> list[str]:
        """Short ids of what was written for a sink so far."""
        done = [one for one in self.transactions if one.done and one.rolled_back is rolled_back]
        return messages_for(sink, done, self.routes)


def run(messages: int) -> None:
    """Show it all, with so many messages, those that are rolled back included.

    Raises:
        RelayError: the numbers do not add up, or it did not come so far.
    """
    servers.check_installed()
    click.echo("starting PostgreSQL, Redis, Kafka (librdkafka's mock cluster) and SQS (moto)")
    began = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relay-demo-")))
        scene = _set_up(stack, folder, messages)
        click.echo(f"ready after {time.monotonic() - began:.1f} s: 2 relays, {len(scene.transactions)} transactions")
        _play(scene)
        code = end(scene.heir.process)
        if code:
            raise RelayError(f"{scene.heir.name} ended with {code} when it was asked to stop")
        click.echo("asking the brokers what they hold")
        sums = {
            sink: add_up(broker, scene.messages(sink), scene.messages(sink, rolled_back=True))
            for sink, broker in scene.brokers.items()
        }
    report({scene.brokers[sink].title: line for sink, line in sums.items()})
    everywhere = set.intersection(*(set(scene.messages(sink)) for sink in sums))
    click.echo(f"It adds up: {len(everywhere):,} messages, each inserted once, are in all {len(sums)} of them.")


def _set_up(stack: ExitStack, folder: Path, messages: int) -> Scene:
    running = stack.enter_context(servers.running(folder))
    variables = running.environment()
    config = folder / "relay.toml"
    config.write_text(Path(__file__).with_name("relay.toml").read_text(encoding="utf-8"), encoding="utf-8")
    for command in ("migrate", "apply"):
        relays.command(folder, variables, command)
    only = [part for sink in VICTIMS_SINKS for part in ("--sink", sink)]
    scene = Scene(
        url=running.database,
        database=stack.enter_context(closing(Database(running.database))),
        routes=load(config, variables).routes,
        brokers=stack.enter_context(connected(running)),
        victim=stack.enter_context(relays.relay("relay 1", folder, variables, *only)),
        heir=stack.enter_context(relays.relay("relay 2", folder, variables)),
        transactions=plan(messages),
    )
    wait_for(lambda: _both_run(scene), "starting two relays")
    return scene


def _both_run(scene: Scene) -> bool:
    scene.victim.check()
    scene.heir.check()
    return read_status(scene.database).relays == 2


def _play(scene: Scene) -> None:
    """Write, kill, and wait for the queue to be empty, or for `LONGEST_S`."""
    kept = [one for one in scene.transactions if not one.rolled_back]
    totals = {WRITTEN: sum(len(one.messages) for one in kept)}
    totals |= {broker.title: len(messages_for(sink, kept, scene.routes)) for sink, broker in scene.brokers.items()}
    store, killed = Store(scene.database), False
    deadline = time.monotonic() + LONGEST_S
    with display(totals) as shown, writing(scene.url, scene.transactions) as writers:
        while time.monotonic() < deadline:
            writers.check()
            scene.heir.check()
            drained = killed and not writers.busy() and store.is_drained(list(scene.brokers))
            written = sum(len(one.messages) for one in kept if one.done)
            shown.show({WRITTEN: written} | {broker.title: broker.count() for broker in scene.brokers.values()})
            if drained:
                return
            if not killed and written >= totals[WRITTEN] / 2:
                _kill(scene, shown)
                killed = True
            time.sleep(LOOK_S)
        shown.say(f"the queue was not empty after {LONGEST_S:g} s")


def _kill(scene: Scene, shown: Display) -> None:
    scene.victim.check()
    held = scene.victim.kill_while_holding(CAUGHT_IN, scene.database)
    left = ", ".join(f"{number:,} for {scene.brokers[sink].title}" for sink, number in sorted(held.items()))
    shown.say(f"{scene.victim.name} killed with SIGKILL while it held {left or 'nothing'}")
    shown.say(f"{scene.heir.name} takes that over once the leases have run out")
