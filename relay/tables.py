"""Tables for people: drawn on a terminal, plain aligned text in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print to standard output. In a pipe: a line a row, columns two spaces apart, nothing cut off."""
    if sys.stdout.isatty():
        _draw(titles, rows)
        return
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    for row in [titles, *rows]:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def _draw(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    # Imported here because a pipe needs none of it.
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*titles, box=box.SIMPLE_HEAD)
    for row in rows:
        table.add_row(*(Text(cell, overflow="fold") for cell in row))
    Console().print(table)
