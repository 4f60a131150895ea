"""What a benchmark says: a table for people, and a JSON file with machine, versions and command at its head."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"
LIBRARIES = ("psycopg", "redis", "confluent-kafka", "boto3")


@dataclass(frozen=True)
class Figure:
    """One measured number. A bar is what it should keep, such as ``<= 7``."""

    figure: str
    value: float
    unit: str
    versus: str | None = None
    bar: str | None = None
    holds: bool | None = None


class Report:
    """Collects figures, prints them, writes them to `benchmarks/results/NAME.json`.

    Args:
        module: of a program that reads its own arguments; default: a benchmark, which knows `--check` only.
        save: whether to write the file.
    """

    def __init__(self, name: str, module: str | None = None, *, save: bool = True) -> None:
        self._check = True if module else _check_asked(name)
        self._module = module or f"benchmarks.{name}"
        self._name = name
        self._save = save
        self._figures: list[Figure] = []
        self.versions: dict[str, str] = {"python": platform.python_version()}
        for library in LIBRARIES:
            self.versions[library] = version(library)

    def add(
        self,
        figure: str,
        value: float,
        unit: str,
        *,
        versus: str | None = None,
        at_most: float | None = None,
        at_least: float | None = None,
    ) -> None:
        """Note a figure, with the bar that it should keep."""
        bar, holds = None, None
        if at_most is not None:
            bar, holds = f"<= {at_most:g}", value <= at_most
        elif at_least is not None:
            bar, holds = f">= {at_least:g}", value >= at_least
        self._figures.append(Figure(figure, round(value, 4), unit, versus, bar, holds))
        print(f"{figure}: {value:.4g} {unit}" + (f" (bar {bar})" if bar else ""), file=sys.stderr)

    def finish(self) -> None:
        """Print and write everything; exits 3 where it is to check the bars and one does not hold."""
        table = Table("figure", "value", "unit", "versus", "bar", "holds", title=self._name)
        for figure in self._figures:
            cells = asdict(figure)
            table.add_row(*(_cell(cells[column]) for column in ("figure", "value", "unit", "versus", "bar", "holds")))
        Console(width=None if sys.stdout.isatty() else 160).print(table)
        if self._save:
            RESULTS.mkdir(exist_ok=True)
            document = [self._head(), *(asdict(figure) for figure in self._figures)]
            (RESULTS / f"{self._name}.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        if self._check and any(figure.holds is False for figure in self._figures):
            sys.exit(3)

    def _head(self) -> Mapping[str, object]:
        return {
            "machine": f"{platform.system()} {platform.release()}, {os.cpu_count()} × {_processor()}",
            "versions": self.versions,
            "command": shlex.join(["python", "-m", self._module, *sys.argv[1:]]),
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
        }


def _check_asked(name: str) -> bool:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}")
    parser.add_argument("--check", action="store_true", help="exit 3 where a bar does not hold")
    return bool(parser.parse_args().check)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return "yes" if value is True else "NO" if value is False else str(value)


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())
