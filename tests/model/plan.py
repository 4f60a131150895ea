"""What a seed decides. Nothing here looks at a clock or a server: the same seed and options give the same plan."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

DEFAULTS: Mapping[str, str] = {
    "default_transaction_isolation": "serializable",
    "synchronous_commit": "off",
    "timezone": "Pacific/Chatham",
    "search_path": "",
    "datestyle": "German",
    "intervalstyle": "sql_standard",
    "bytea_output": "escape",
    "extra_float_digits": "-15",
    "enable_indexscan": "off",
    "default_transaction_deferrable": "on",
    "row_security": "off",
    "plan_cache_mode": "force_generic_plan",
}
"""What somebody may have set for the whole database."""
MOST_DEFAULTS = 3
MOST_SINKS = 4
RELAYS = (2, 4)
LEASES_S = (2, 3, 4)
PAUSE_S = (0.2, 2.5)
"""Between two steps."""


@dataclass(frozen=True)
class Step:
    """One thing that is done to the world."""

    at: float
    """Seconds from the start."""
    name: str
    chance: int
    """Seed of the choices that it makes when its time has come."""

    def __str__(self) -> str:
        return f"{self.at:6.1f} s  {self.name}"


@dataclass(frozen=True)
class Plan:
    """One world and its fate."""

    seed: int
    seconds: float
    defaults: Mapping[str, str]
    """Settings of the database."""
    prepares: bool
    """Writers use two-phase commit; else relays are woken by notifications."""
    sinks: Sequence[str]
    relays: Sequence[Mapping[str, Any]]
    """Keys of every sink, as each relay has them."""
    writers: int
    """Seed of what is written."""
    steps: Sequence[Step]

    def __str__(self) -> str:
        lines = [
            f"seed {self.seed}: sinks {', '.join(self.sinks)}",
            f"  database: {dict(self.defaults)}, {'prepared transactions' if self.prepares else 'notifications'}",
            *(f"  relay {number}: {dict(keys)}" for number, keys in enumerate(self.relays)),
            *(f"  {step}" for step in self.steps),
        ]
        return "\n".join(lines)


def make_plan(seed: int, seconds: float, sinks: Sequence[str], steps: Mapping[str, frozenset[str]]) -> Plan:
    """Decide.

    Args:
        sinks: those to choose from.
        steps: those to choose from, each with the sinks of which it needs one; none: it fits any.
    """
    chance = random.Random(seed)
    chosen = sorted(chance.sample(list(sinks), min(len(sinks), chance.randint(2, MOST_SINKS))))
    names = sorted(chance.sample(list(DEFAULTS), chance.randint(0, MOST_DEFAULTS)))
    return Plan(
        seed=seed,
        seconds=seconds,
        defaults={name: DEFAULTS[name] for name in names},
        prepares=chance.random() < 0.6,
        sinks=chosen,
        relays=[_settings(chance) for _ in range(chance.randint(*RELAYS))],
        writers=chance.randrange(2**32),
        steps=_steps(seconds, [name for name, needs in steps.items() if not needs or needs & {*chosen}], chance),
    )


def _settings(chance: random.Random) -> dict[str, Any]:
    lease = chance.choice(LEASES_S)
    return {
        "batch_messages": chance.choice((1, 3, 20, 100, 1000)),
        "workers": chance.choice((1, 1, 2, 4)),
        "lease": f"{lease}s",
        "send_timeout": f"{chance.choice((lease / 2, lease / 3)):.1f}s",
    }


def _steps(seconds: float, names: Sequence[str], chance: random.Random) -> list[Step]:
    found: list[Step] = []
    at = chance.uniform(*PAUSE_S)
    while names and at < seconds:
        found.append(Step(round(at, 1), chance.choice(names), chance.randrange(2**32)))
        at += chance.uniform(*PAUSE_S)
    return found
