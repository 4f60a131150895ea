"""Servers that crash, freeze, or hand their work to another one."""

from __future__ import annotations

import contextlib
import random
import signal
from dataclasses import replace

import redis

from tests.model.world import World
from tests.servers.base import Server
from tests.servers.redis import Sentinel


def crash_postgres(world: World, chance: random.Random) -> None:
    """An immediate stop or SIGKILL, as a power cut would be; it comes back and recovers."""
    postgres = world.stage.postgres
    if not postgres.up:
        return
    if chance.random() < 0.5:
        postgres.kill(postgres.server)
    else:
        postgres.server.stop(signal.SIGQUIT)
        postgres.stop()
    world.later(chance.uniform(0.1, 3.0), postgres.start)


def kill_redis(world: World, chance: random.Random) -> None:
    """It comes back with all that it acknowledged."""
    server = world.stage.redis
    if server.up:
        server.kill(server.server.server)
        world.later(chance.uniform(0.1, 6.0), server.start)


def freeze_redis(world: World, chance: random.Random) -> None:
    if world.stage.redis.up:
        _freeze(world, world.stage.redis.server.server, chance)


def kill_clients(world: World, _: random.Random) -> None:
    """An operator, or a proxy of the provider's, ends all connections."""
    if world.stage.redis.up:
        with contextlib.suppress(redis.RedisError), world.stage.redis.server.client() as client:
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


def roll_cluster(world: World, chance: random.Random) -> None:
    """A node of the cluster goes away, then another one: it refuses, or it does not answer."""
    assert world.stage.slots
    proxies = list(world.stage.slots.proxies)
    chance.shuffle(proxies)
    at = 0.0
    for proxy in proxies[:2]:
        break_it = proxy.stall if chance.random() < 0.4 else proxy.refuse
        away = chance.uniform(0.3, 6.0)
        world.later(at, break_it)
        world.later(at, proxy.cut if break_it == proxy.refuse else lambda: None)
        world.later(at + away, proxy.resume)
        at += away + chance.uniform(-0.3, 0.5)


def freeze_node(world: World, chance: random.Random) -> None:
    assert world.stage.slots
    _freeze(world, chance.choice(world.stage.slots.nodes).server, chance)


def fail_over(world: World, _: random.Random) -> None:
    """An operator asks for another primary."""
    sentinel = world.stage.sentinel
    if sentinel and "sentinel" not in world.held:
        # Refused while the last one is not over.
        with contextlib.suppress(redis.RedisError), sentinel.sentinels[0].client() as client:
            client.execute_command("SENTINEL", "FAILOVER", sentinel.name)


def part_primary(world: World, chance: random.Random) -> None:
    """The primary serves clients, and neither sentinels nor replicas reach it."""
    sentinel = world.stage.sentinel
    if sentinel is None or "sentinel" in world.held:
        return
    world.held.add("sentinel")
    primary = replace(sentinel, primary=sentinel.current())
    primary.part()
    world.later(chance.uniform(2.0, 10.0), lambda: _join(world, primary))


def _join(world: World, primary: Sentinel) -> None:
    primary.heal()
    world.held.discard("sentinel")


def kill_broker(world: World, chance: random.Random) -> None:
    """The leader of a partition, most often; never two at a time, as then nothing could be written."""
    kafka = world.stage.kafka
    if kafka is None or any(broker.server is None for broker in kafka.brokers):
        return
    broker = chance.choice(kafka.brokers)
    broker.kill()
    world.later(chance.uniform(1.0, 10.0), lambda: broker.start(wait=False))


def freeze_broker(world: World, chance: random.Random) -> None:
    kafka = world.stage.kafka
    if kafka is not None and all(broker.server for broker in kafka.brokers):
        server = chance.choice(kafka.brokers).server
        if server:
            _freeze(world, server, chance)


def _freeze(world: World, server: Server, chance: random.Random) -> None:
    if server.running():
        server.freeze()
        world.later(chance.uniform(0.3, 6.0), lambda: server.thaw() if server.running() else None)


def heal(world: World) -> None:
    """All are there again. What was to happen later has happened."""
    stage = world.stage
    stage.postgres.start()
    if "redis" in world.wires.urls:
        stage.redis.start()
    if stage.slots:
        for proxy in stage.slots.proxies:
            proxy.resume()
