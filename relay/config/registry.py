"""Sink classes by type, from the entry-point group `outbox_relay.sinks`: ours and any plug-in's."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from relay.config.tree import nearest
from relay.errors import UsageError
from sinks.base import Sink

GROUP: Final = "outbox_relay.sinks"

EXTRAS: Final = {"redis-stream": "redis", "sidekiq": "redis", "kafka": "kafka", "sqs": "sqs"}
"""The extra of this package that brings a built-in sink's library."""


class SinkTypeError(UsageError):
    """A sink type that cannot be used: `expected` says what could, `got` what came."""

    def __init__(self, expected: str, got: str) -> None:
        super().__init__(f"expected {expected}, got {got}")
        self.expected, self.got = expected, got


class UnknownSinkType(SinkTypeError):
    """No sink of that type is installed."""


def load_sink(type_name: str) -> type[Sink]:
    """The class of a sink type.

    Raises:
        UnknownSinkType: no such type.
        SinkTypeError: its library is not installed, or its class is no sink.
    """
    types = _installed()
    if type_name not in types:
        raise UnknownSinkType(f"an installed sink type ({nearest(type_name, list(types))})", f'"{type_name}"')
    sink_class = _load(types[type_name])
    if not (isinstance(sink_class, type) and issubclass(sink_class, Sink)):
        raise SinkTypeError(f"a subclass of sinks.base.Sink at {types[type_name].value}", repr(sink_class))
    return sink_class


def _installed() -> dict[str, EntryPoint]:
    return {entry_point.name: entry_point for entry_point in entry_points(group=GROUP)}


def _load(entry_point: EntryPoint) -> Any:
    try:
        return entry_point.load()
    except ModuleNotFoundError as error:
        extra = EXTRAS.get(entry_point.name)
        hint = f": pip install 'outbox-relay[{extra}]'" if extra else ""
        raise SinkTypeError(f'the library of "{entry_point.name}" to be installed{hint}', str(error)) from error
    except Exception as error:
        # A plug-in's module is a stranger's code: whatever it raises is one problem among the others.
        raise SinkTypeError(f"{entry_point.value} to be importable", f"{type(error).__name__}: {error}") from error
