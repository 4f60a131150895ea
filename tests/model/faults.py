"""What goes wrong: processes, sessions, wires, servers. Each is over by itself, or when the world is healed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.crash import faults as wires
from tests.model.world import World
from tests.servers.proxy import Direction

Fault = Callable[[World, random.Random], None]
REDIS = frozenset({"stream", "stream_keys", "stream_strict", "jobs", "jobs_keys"})
LOCAL = frozenset({"local_threads", "local_processes", "local_skip", "local_block"})


@dataclass(frozen=True)
class Kind:
    """A step that a plan may choose."""

    do: Fault
    needs: frozenset[str] = field(default_factory=frozenset)
    """Sinks of which it needs one; none: it fits any world."""


def kill(world: World, _: random.Random) -> None:
    world.relays.kill()


def terminate(world: World, _: random.Random) -> None:
    world.relays.terminate()


def freeze(world: World, chance: random.Random) -> None:
    world.relays.freeze(0.1, 12.0)


def end_sessions(world: World, chance: random.Random) -> None:
    """Database sessions of the relays are terminated, each with this probability."""
    world.sql(
        "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
        " and application_name like 'outbox-relay%%' and random() < %s",
        chance.choice((0.2, 1.0)),
    )


def disturb_database(world: World, chance: random.Random) -> None:
    wires.disturb(chance.choice(world.wires.proxies["postgres"]), chance)


def disturb_redis(world: World, chance: random.Random) -> None:
    wires.disturb(chance.choice(world.wires.proxies["redis"]), chance)


def hold_requests(world: World, chance: random.Random) -> None:
    """What one relay sends to Redis, or what it is answered, is held in the network, and let go long after."""
    direction = chance.choice((Direction.TO_SERVER, Direction.TO_SERVER, Direction.TO_CLIENT))
    dies, seconds = chance.random() < 0.4, chance.uniform(1.0, 14.0)
    relay = chance.randrange(len(world.plan.relays))
    proxy = world.wires.proxies["redis"][relay]
    proxy.stall(direction)
    if dies and world.relays.holding() is not None:
        world.relays.kill()
    world.later(seconds, proxy.resume)


def fail_jobs(world: World, chance: random.Random) -> None:
    """What the jobs need is down."""
    file = world.folder / "down"
    file.touch()
    world.later(chance.uniform(0.2, 4.0), lambda: file.unlink(missing_ok=True))


FAULTS: dict[str, Kind] = {
    "kill": Kind(kill),
    "terminate": Kind(terminate),
    "freeze": Kind(freeze),
    "end sessions": Kind(end_sessions),
    "disturb database": Kind(disturb_database),
    "disturb redis": Kind(disturb_redis, REDIS),
    "hold requests": Kind(hold_requests, REDIS),
    "fail jobs": Kind(fail_jobs, LOCAL),
}
