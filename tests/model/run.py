"""One seed: a world is made, lives, is healed and drained, and then everything is counted."""

from __future__ import annotations

import random
import shutil
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path

from tests.model import servers
from tests.model.check import Violation, check
from tests.model.commands import finish
from tests.model.plan import Plan
from tests.model.stage import Stage
from tests.model.steps import STEPS
from tests.model.world import World, new_world
from tests.servers.base import wait_until

DRAINED_WITHIN_S = 90.0
STOPPED_WITHIN_S = 60.0


@dataclass(frozen=True)
class Result:
    """What became of a seed."""

    plan: Plan
    committed: int
    """Messages, each counted once a sink."""
    violations: list[Violation]
    folder: Path | None
    """Where its logs are kept; None: nothing was wrong."""


def run(plan: Plan, stage: Stage, tree: Path | None = None) -> Result:
    """Go through it all.

    Args:
        tree: the relays run this copy of the product.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"relay-model-{plan.seed}-"))
    violations: list[Violation] = []
    committed = 0
    try:
        with new_world(plan, stage, folder, tree) as world:
            try:
                live(world)
                drained = drain(world, DRAINED_WITHIN_S)
                stop(world)
                violations += check(world, drained)
                [(committed,)] = world.sql("select count(*) from public.model_audit where what = 'live'")
            finally:
                (folder / "plan").write_text(f"{plan}\n")
                (folder / "log").write_text("\n".join(world.log) + "\n")
    except Exception:  # noqa: BLE001 - the other seeds are still to be tried
        violations.append(Violation("crashed", "the checker itself", (traceback.format_exc(),)))
    if not violations:
        shutil.rmtree(folder)
    return Result(plan, committed, violations, folder if violations else None)


def live(world: World) -> None:
    """Let the plan's steps happen, then heal."""
    for step in world.plan.steps:
        world.at(step.at, lambda step=step: _do(world, step.name, step.chance))  # type: ignore[misc]
    world.live(world.plan.seconds)
    world.note("all is healed")
    heal(world)
    world.end_work()
    finish(world)


def _do(world: World, name: str, seed: int) -> None:
    world.note(name)
    STEPS[name].do(world, random.Random(seed))


def heal(world: World) -> None:
    """End all that is wrong."""
    world.rest()
    servers.heal(world)
    world.wires.heal()
    world.relays.thaw()
    world.writers.stop()
    (world.folder / "down").unlink(missing_ok=True)
    (world.folder / "healed").touch()


def unblock(world: World, sink: str) -> None:
    """Put back what is dead; then let go what nobody else lets go."""
    [(dead, blocked)] = world.sql(
        "select (select count(*) from relay.dead where sink = %s),"
        " (select count(*) from relay.stuck_keys where sink = %s and retry_at is null)",
        sink, sink,
    ) or [(0, 0)]  # fmt: skip
    if dead:
        world.command("dead", "requeue", "--sink", sink, "--yes")
    elif blocked:
        world.command("keys", "release", "--all", "--sink", sink)


def drain(world: World, timeout: float) -> bool:
    """Wait until nothing is left to deliver; whether that came true."""

    def empty() -> bool:
        world.relays.keep_alive()
        for sink in world.sinks:
            if sink.blocks:
                unblock(world, sink.name)
        [(left,)] = world.sql(
            "select (select count(*) from relay.outbox) + (select count(*) from relay.claims)"
            " + (select count(*) from relay.stuck_keys)"
        ) or [(1,)]
        return bool(left == 0)

    try:
        wait_until(empty, timeout=timeout, interval=0.3)
    except TimeoutError:
        return False
    return True


def stop(world: World) -> None:
    """Ask all relays to end, and wait until they did."""
    for _ in world.relays.launches:
        world.relays.leave()
    left = [relay for _, relay in world.relays.left]
    try:
        wait_until(lambda: all(relay.poll() is not None for relay in left), timeout=STOPPED_WITHIN_S, interval=0.1)
    except TimeoutError:
        world.note("a relay that got SIGTERM goes on")
