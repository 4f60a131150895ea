"""Live progress: bars on a terminal, a line a second in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

import click

EVERY_S = 1.0


class Display(Protocol):
    def say(self, text: str) -> None:
        """A line of its own, which stays."""
        ...

    def show(self, numbers: Mapping[str, int]) -> None:
        """How far each thing is."""
        ...


@contextmanager
def display(totals: Mapping[str, int]) -> Iterator[Display]:
    """
    Args:
        totals: what is counted, and how far it will go.
    """
    if sys.stdout.isatty():
        # Imported here because a pipe needs none of it.
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description:<15}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns) as progress:
            tasks = {name: progress.add_task(name, total=total) for name, total in totals.items()}

            class Bars:
                def say(self, text: str) -> None:
                    progress.console.print(text, highlight=False, markup=False)

                def show(self, numbers: Mapping[str, int]) -> None:
                    for name, number in numbers.items():
                        progress.update(tasks[name], completed=number)

            yield Bars()
    else:
        yield _Lines(totals)


class _Lines:
    def __init__(self, totals: Mapping[str, int]) -> None:
        self._totals = totals
        self._began = time.monotonic()
        self._said_at = -EVERY_S
        self._said: Mapping[str, int] = {}

    def say(self, text: str) -> None:
        click.echo(text)
        sys.stdout.flush()

    def show(self, numbers: Mapping[str, int]) -> None:
        seconds = time.monotonic() - self._began
        if numbers == self._said or (seconds - self._said_at < EVERY_S and numbers != self._totals):
            return
        counts = (f"{name} {number:,}/{self._totals[name]:,}" for name, number in numbers.items())
        self.say(f"{seconds:5.1f} s  {', '.join(counts)}")
        self._said, self._said_at = dict(numbers), seconds
