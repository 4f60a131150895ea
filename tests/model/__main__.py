"""`python -m tests.model --seeds 20 --seconds 60`: each seed is a world of its own, one after the other."""

from __future__ import annotations

import argparse
import secrets
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.report import Report
from tests.model.check import INVARIANTS
from tests.model.plan import Plan, make_plan
from tests.model.planted import PLANTS, planted
from tests.model.run import Result, run
from tests.model.sinks import FROM_WHEELS, SINKS
from tests.model.stage import Stage, stage
from tests.model.steps import STEPS
from tests.servers.postgres import DEFAULT_VERSION
from tests.servers.redis import DEFAULT_VERSION as DEFAULT_REDIS


def main() -> None:
    asked = arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the servers end with this process
    report = Report("model", module="tests.model", save=not asked.keep)
    first = asked.seed if asked.seed is not None else secrets.randbelow(10**6)
    sinks = [sink for name in asked.planted for sink in PLANTS[name].sinks] or asked.sinks
    with stage(sinks, asked.postgres, asked.redis) as servers:
        if asked.planted:
            for name in asked.planted:
                find(name, first, asked.seeds, asked.seconds, servers, report)
        else:
            for seed in range(first, first + asked.seeds):
                tell(run(decide(seed, asked.seconds, asked.sinks, asked.steps), servers), report)
    report.finish()


def decide(seed: int, seconds: float, sinks: Sequence[str], steps: Sequence[str]) -> Plan:
    plan = make_plan(seed, seconds, sinks, {name: STEPS[name].needs for name in steps})
    print(f"seed {seed}: {', '.join(plan.sinks)}", flush=True)
    return plan


def find(name: str, first: int, seeds: int, seconds: float, servers: Stage, report: Report) -> None:
    """Try seeds until a planted bug is found."""
    plant = PLANTS[name]
    with planted(name) as tree:
        for seed in range(first, first + seeds):
            plan = decide(seed, seconds, plant.sinks, plant.steps)
            plan = replace(plan, relays=[{**keys, **plant.keys} for keys in plan.relays])
            result = run(plan, servers, tree)
            found = [violation for violation in result.violations if violation.invariant in plant.finds]
            print(f"planted: {name}", *(found or result.violations), sep="\n", flush=True)
            if result.folder:
                shutil.rmtree(result.folder)
            if found:
                report.add(f"planted: {name}: found by seed", seed, "", versus=found[0].invariant)
                return
    report.add(f"planted: {name}: found", 0, "times", at_least=1)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.model")
    parser.add_argument("--seeds", type=int, default=20, help="how many")
    parser.add_argument("--seconds", type=float, default=60.0, help="that each of them lives before it is healed")
    parser.add_argument("--seed", type=int, help="the first one; a seed repeats its decisions under the same options")
    parser.add_argument("--sinks", type=_names(SINKS), default=list(SINKS), help="comma-separated: " + ", ".join(SINKS))
    parser.add_argument("--steps", type=_names(STEPS), default=list(STEPS), help="comma-separated: " + ", ".join(STEPS))
    parser.add_argument(
        "--planted", type=_names(PLANTS), nargs="?", const=list(PLANTS), default=[],
        help="run copies of the product with a bug, which must be found; all, or comma-separated: " + ", ".join(PLANTS),
    )  # fmt: skip
    parser.add_argument("--wheels", action="store_true", help="only servers that come with Python packages")
    parser.add_argument("--postgres", type=int, default=DEFAULT_VERSION, help="version")
    parser.add_argument("--redis", default=DEFAULT_REDIS, help="version")
    parser.add_argument("--keep", action="store_true", help="leave benchmarks/results alone")
    asked = parser.parse_args()
    if asked.wheels:
        asked.sinks = [name for name in asked.sinks if name in FROM_WHEELS]
    return asked


def _names(known: Collection[str]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}")
        return names

    return parse


def tell(result: Result, report: Report) -> None:
    """Print what is wrong, with the plan; note each invariant."""
    seed = result.plan.seed
    if result.violations:
        log = Path(result.folder or ".") / "log"
        print(result.plan, *result.violations, f"what was done: {log}", sep="\n", flush=True)
    report.add(f"seed {seed}: committed", result.committed, "messages", versus=", ".join(result.plan.sinks))
    wrong = Counter[str]()
    for violation in result.violations:
        wrong[violation.invariant] += len(violation.what)
    for invariant in INVARIANTS:
        report.add(f"seed {seed}: {invariant}", wrong[invariant], "cases", at_most=0)


if __name__ == "__main__":
    main()
