"""How far a long piece of work is: a bar on a terminal, now and then a line elsewhere. On standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

EVERY_S = 5.0


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Gives a function to call with how many more are done."""
    if not sys.stderr.isatty():
        yield _lines(what, total)
        return
    # Imported here because a pipe needs none of it.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda more: bar.advance(task, more)


def _lines(what: str, total: int) -> Callable[[int], None]:
    done = 0
    said = time.monotonic()

    def advance(more: int) -> None:
        nonlocal done, said
        done += more
        if time.monotonic() - said >= EVERY_S:
            click.echo(f"{what}: {done:,} of {total:,}", err=True)
            said = time.monotonic()

    return advance
