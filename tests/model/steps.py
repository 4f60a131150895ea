"""Everything that a plan may do to its world, by name."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.model import commands, faults, servers
from tests.model.sinks import SINKS
from tests.model.world import World


@dataclass(frozen=True)
class Step:
    """One of them."""

    do: Callable[[World, random.Random], None]
    needs: frozenset[str] = field(default_factory=frozenset)
    """Sinks of which it needs one; none: it fits any world."""


def _sinks(*beginnings: str) -> frozenset[str]:
    return frozenset(name for name in SINKS if name.startswith(beginnings))


REDIS = _sinks("stream", "jobs")
LOCAL = _sinks("local")
SLOTS = _sinks("slots")
SENTINEL = _sinks("sentinel")
KAFKA = _sinks("kafka")
ORDERED = frozenset(SINKS) - {"stream", "jobs", "local_threads", "local_processes", "slots"}

STEPS: Mapping[str, Step] = {
    "kill": Step(faults.kill),
    "terminate": Step(faults.terminate),
    "freeze": Step(faults.freeze),
    "end sessions": Step(faults.end_sessions),
    "disturb database": Step(faults.disturb_database),
    "disturb redis": Step(faults.disturb_redis, REDIS),
    "hold requests": Step(faults.hold_requests, REDIS),
    "fail jobs": Step(faults.fail_jobs, LOCAL),
    "crash postgres": Step(servers.crash_postgres),
    "kill redis": Step(servers.kill_redis, REDIS),
    "freeze redis": Step(servers.freeze_redis, REDIS),
    "kill clients": Step(servers.kill_clients, REDIS),
    "roll cluster": Step(servers.roll_cluster, SLOTS),
    "freeze node": Step(servers.freeze_node, SLOTS),
    "fail over": Step(servers.fail_over, SENTINEL),
    "part primary": Step(servers.part_primary, SENTINEL),
    "kill broker": Step(servers.kill_broker, KAFKA),
    "freeze broker": Step(servers.freeze_broker, KAFKA),
    "requeue": Step(commands.requeue, LOCAL),
    "discard": Step(commands.discard, LOCAL),
    "release": Step(commands.release, ORDERED),
    "pause": Step(commands.pause),
    "reshard": Step(commands.reshard, ORDERED),
    "apply": Step(commands.apply),
    "rewrite": Step(commands.rewrite),
    "vacuum": Step(commands.vacuum),
    "hold snapshot": Step(commands.hold_snapshot),
    "look": Step(commands.look),
}
