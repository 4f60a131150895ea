"""`python -m tests.model --seeds 20 --seconds 60`: each seed is a world of its own, one after the other."""

from __future__ import annotations

import argparse
import secrets
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path

from benchmarks.report import Report
from tests.model.check import INVARIANTS
from tests.model.faults import FAULTS
from tests.model.plan import make_plan
from tests.model.run import Result, needs, run
from tests.model.sinks import FROM_WHEELS, SINKS
from tests.model.stage import stage
from tests.servers.postgres import DEFAULT_VERSION
from tests.servers.redis import DEFAULT_VERSION as DEFAULT_REDIS


def main() -> None:
    asked = arguments()
    first = asked.seed if asked.seed is not None else secrets.randbelow(10**6)
    report = Report("model", module="tests.model", save=not asked.keep)
    with stage(asked.sinks, asked.postgres, asked.redis) as servers:
        for seed in range(first, first + asked.seeds):
            plan = make_plan(seed, asked.seconds, asked.sinks, needs(dict.fromkeys(asked.steps)))
            print(f"seed {seed}: {', '.join(plan.sinks)}", flush=True)
            tell(run(plan, servers), report)
    report.finish()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.model")
    parser.add_argument("--seeds", type=int, default=20, help="how many")
    parser.add_argument("--seconds", type=float, default=60.0, help="that each of them lives before it is healed")
    parser.add_argument("--seed", type=int, help="the first one; a seed repeats its decisions under the same options")
    parser.add_argument("--sinks", type=_names(SINKS), default=list(SINKS), help="comma-separated: " + ", ".join(SINKS))
    parser.add_argument(
        "--steps", type=_names(FAULTS), default=list(FAULTS), help="comma-separated: " + ", ".join(FAULTS)
    )
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
