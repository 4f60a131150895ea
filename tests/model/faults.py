"""What goes wrong: processes, sessions, wires, servers. It is over by itself, or when the world is healed.

Each fault gets a random generator that decides how it comes.
"""

from __future__ import annotations

import random

from tests.crash import faults as wires
from tests.model.world import World
from tests.servers.proxy import Direction


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
    """What one relay sends to Redis, or what it is answered, is held in the network, and let go long after; meanwhile
    that relay may die. One at a time: another relay must be able to go on with its messages."""
    direction = chance.choice((Direction.TO_SERVER, Direction.TO_SERVER, Direction.TO_CLIENT))
    dies, outlives_lease = chance.random() < 0.4, chance.random() < 0.7
    relay, more = chance.randrange(len(world.plan.relays)), chance.uniform(0.5, 3.0)
    if "redis" in world.held:
        return
    world.held.add("redis")
    proxy = world.wires.proxies["redis"][relay]
    proxy.stall(direction)
    if dies and world.relays.holds(relay):
        world.relays.kill(relay)

    def let_go() -> None:
        proxy.resume()
        world.held.discard("redis")

    lease = float(world.plan.relays[relay]["lease"].removesuffix("s"))
    world.later(more + (lease + 1.0 if outlives_lease else 0), let_go)


def fail_jobs(world: World, chance: random.Random) -> None:
    """What the jobs need is down."""
    file = world.folder / "down"
    file.touch()
    world.later(chance.uniform(0.2, 4.0), lambda: file.unlink(missing_ok=True))
