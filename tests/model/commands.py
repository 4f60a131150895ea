"""What an operator does meanwhile: commands of `relay`, and what any owner may do to the tables. Two work at once."""

from __future__ import annotations

import contextlib
import json
import random

import psycopg

from tests.model.sinks import Destination
from tests.model.world import World, configure

TABLES = ("relay.outbox", "relay.outbox", "relay.claims", "relay.dead", "relay.stuck_keys")
LOCK_S = 5
"""A careful operator does not wait for a lock for longer."""
REWRITES = ("vacuum full {}", "reindex table {}", "vacuum (freeze, truncate) {}")
OTHERS = ("cluster relay.claims using claims_by_sink", "update relay.outbox set kind = kind where random() < 0.5")


def requeue(world: World, chance: random.Random) -> None:
    world.operate(lambda: world.command("dead", "requeue", *_which(world, chance), "--yes"))


def discard(world: World, chance: random.Random) -> None:
    which = _which(world, chance)
    world.discards |= {which[1]} if len(which) > 1 else {sink.name for sink in world.sinks}
    world.operate(lambda: world.command("dead", "discard", *which, "--yes"))


def _which(world: World, chance: random.Random) -> list[str]:
    return ["--all"] if chance.random() < 0.3 else ["--sink", chance.choice(world.sinks).name]


def release(world: World, chance: random.Random) -> None:
    sink = chance.choice([sink for sink in world.sinks if sink.ordered])
    world.releases.add(sink.name)
    world.operate(lambda: world.command("keys", "release", "--all", "--sink", sink.name))


def pause(world: World, chance: random.Random) -> None:
    """For a while; meanwhile the status says so, and nothing is claimed."""
    sink = chance.choice(world.sinks).name
    reason = f"maintenance {chance.randrange(1000)}"
    seconds = chance.uniform(0.5, 6.0)

    def paused() -> None:
        with world.pausing[sink]:
            if world.command("pause", sink, "--reason", reason).returncode:
                return
            done = world.command("status", "--json")
            if done.returncode == 0 and json.loads(done.stdout)["sinks"][sink]["paused"] is None:
                world.untrue.append(f"{sink} is paused, status says it is not")
            world.halt(seconds)
            claimed = "select count(*) from relay.claims c, relay.sinks s where s.name = c.sink and c.sink = %s"
            late = world.sql(f"{claimed} and c.claimed_at > s.paused_at + interval '2 seconds'", sink)
            if late and late[0][0]:
                world.untrue.append(f"{sink} is paused, and {late[0][0]} claims were made two seconds later")
            world.command("resume", sink)

    world.operate(paused)


def reshard(world: World, chance: random.Random) -> None:
    """To another number of shards; at times killed half way, and ended only when the world is healed."""
    sink = chance.choice([sink for sink in world.sinks if sink.ordered])
    shards, killed_after = chance.randint(1, 12), chance.uniform(0.3, 3.0) if chance.random() < 0.4 else None
    world.resharded = True

    def moved() -> None:
        with world.pausing[sink.name]:
            done = world.command("reshard", sink.name, str(shards), timeout=killed_after)
            if done.returncode == 0:
                take_up(world, sink)

    world.operate(moved)


def take_up(world: World, sink: Destination) -> None:
    """Write the number of shards that the database has into the relays' files."""
    for (shards,) in world.sql("select shards from relay.sinks where name = %s", sink.name):
        sink.shards = shards
    configure(world.plan, world.sinks, world.folder)


def apply(world: World, chance: random.Random) -> None:
    """Take a route away and give it back; or only look."""
    sink = chance.choice(world.sinks).name
    seconds = chance.uniform(0.2, 3.0)
    again = chance.random() < 0.3

    def applied() -> None:
        with world.applying:
            if again:
                world.command("apply")
                return
            world.sql("delete from relay.routes where kind = %s", f"to.{sink}")
            world.halt(seconds)
            world.command("apply")

    world.operate(applied)


def rewrite(world: World, chance: random.Random) -> None:
    """Every row gets another place, or every index is new."""
    texts = OTHERS if chance.random() < 0.3 else REWRITES
    text = chance.choice(texts).format(chance.choice(TABLES))
    world.operate(lambda: _maintain(world, text))


def vacuum(world: World, _: random.Random) -> None:
    """As autovacuum would after some time: places of rows that are gone are taken anew."""
    world.operate(lambda: _maintain(world, "vacuum relay.outbox"))


def _maintain(world: World, text: str) -> None:
    world.note(text)
    with contextlib.suppress(psycopg.OperationalError):  # a lock was not to be had, or the server is down
        with psycopg.connect(world.url, autocommit=True, connect_timeout=5) as conn:
            conn.execute(f"set lock_timeout = '{LOCK_S}s'".encode())
            conn.execute(text.encode())


def hold_snapshot(world: World, chance: random.Random) -> None:
    """A report runs for long: nothing that it could see is cleaned up."""
    seconds = chance.uniform(2.0, 15.0)

    def held() -> None:
        with contextlib.suppress(psycopg.OperationalError):
            with psycopg.connect(world.url, connect_timeout=5) as conn:
                conn.execute("set transaction isolation level repeatable read, read only")
                conn.execute("select count(*) from relay.outbox")
                world.halt(seconds)

    world.operate(held)


def look(world: World, chance: random.Random) -> None:
    command = chance.choice(
        (["status", "--json"], ["status", "--check"], ["dead", "list", "--json"], ["keys", "blocked", "--all"])
    )
    world.operate(lambda: world.command(*command))


def finish(world: World) -> None:
    """Whatever an operator has begun is ended."""
    for sink in world.sinks:
        rows = world.sql("select shards, resharding, paused_reason from relay.sinks where name = %s", sink.name)
        for shards, resharding, paused in rows:
            if resharding:
                world.command("reshard", sink.name, str(shards))
            if sink.ordered:
                take_up(world, sink)
            if paused:
                world.command("resume", sink.name)
    world.command("apply")
