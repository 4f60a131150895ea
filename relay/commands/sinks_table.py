"""A line a sink: what `relay status` prints once, and `--watch` again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relay.admin.status import SinkStatus

TITLES = ("SINK", "DUE", "LATER", "RETRYING", "HELD", "KEYS", "CLAIMED", "DEAD", "OLDEST DUE", "PAUSED", "CIRCUIT")


def cells(sink: SinkStatus) -> tuple[str, ...]:
    """A sink's row of the table, under `TITLES`."""
    counts = (sink.due, sink.later, sink.retrying, sink.held, sink.keys, sink.claimed, sink.dead)
    numbers = (f"{number:,}" for number in counts)
    name = sink.name if sink.known else f"{sink.name} (not configured)"
    circuit = sink.circuit if sink.unwell is None else f"open: {sink.unwell}"
    return (name, *numbers, age(sink.oldest_due_seconds), paused(sink), circuit)


def paused(sink: SinkStatus) -> str:
    """Why, and for how long."""
    if sink.paused is None:
        return "-"
    return sink.paused if sink.paused_seconds is None else f"{sink.paused} ({age(sink.paused_seconds)})"


def age(seconds: float | None) -> str:
    """In the largest unit of which there are at least two: `1.5s`, `90s`, `3m`, `47h`."""
    if seconds is None:
        return "-"
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:.1f}s"
