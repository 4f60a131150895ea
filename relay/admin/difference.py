"""What the configuration file says of sinks and routes, compared with what the database has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, LiteralString, NamedTuple, TypeVar

from relay.config.settings import Route, Settings, SinkSettings
from relay.errors import UsageError
from relay.statements import statement

Query = Callable[[LiteralString], Iterable[tuple[Any, ...]]]
T = TypeVar("T", bound="SinkRow | RouteRow")


class SinkRow(NamedTuple):
    """A row of `relay.sinks`, as far as the file decides it."""

    name: str
    shards: int
    max_attempts: int
    hand_over: int | None
    strict: bool

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.name,)


class RouteRow(NamedTuple):
    """A row of `relay.routes`."""

    kind: str
    sink: str
    lo: int
    hi: int
    shadow: bool

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.kind, self.sink, self.lo)


class Change(NamedTuple, Generic[T]):
    """A row that only the file has, or only the database, or each differently."""

    old: T | None
    new: T | None


@dataclass(frozen=True, slots=True)
class Difference:
    """Rows that an apply writes."""

    sinks: list[Change[SinkRow]]
    routes: list[Change[RouteRow]]
    wanted: list[RouteRow]
    """Every route of the file."""

    def __iter__(self) -> Iterator[Change[SinkRow] | Change[RouteRow]]:
        yield from self.sinks
        yield from self.routes

    @property
    def removed(self) -> set[tuple[str, ...]]:
        """What the database has and the file does not: sinks by name, routes by kind and sink."""
        kept = {(route.kind, route.sink) for route in self.wanted}
        routes = {(old.kind, old.sink) for old, _ in self.routes if old} - kept
        return {(old.name,) for old, new in self.sinks if old and not new} | routes

    def __bool__(self) -> bool:
        return bool(self.sinks or self.routes)


def difference(query: Query, settings: Settings) -> Difference:
    """Compare.

    Args:
        query: runs a statement and gives its rows.

    Raises:
        UsageError: the file has a route twice, or no sink at all while the database has some.
    """
    there = list(map(SinkRow._make, query(statement("admin/apply/configured_sinks"))))
    if there and not settings.sinks:
        raise UsageError("expected sinks in the configuration, got none: is it the right file, and where it should be?")
    sinks = [_sink_row(sink) for sink in settings.sinks.values()]
    routes = [_route_row(route) for route in settings.routes]
    if len(_by_key(routes)) < len(routes):
        twice = next(row for row in routes if routes.count(row) > 1 or _by_key(routes)[row.key] != row)
        raise UsageError(
            f"expected one route for kind {twice.kind}, sink {twice.sink} and share from {twice.lo}, got several"
        )
    return Difference(
        _changes(there, sinks),
        _changes(map(RouteRow._make, query(statement("admin/apply/configured_routes"))), routes),
        routes,
    )


def _changes(there: Iterable[T], wanted: Iterable[T]) -> list[Change[T]]:
    old, new = _by_key(there), _by_key(wanted)
    changes = [Change(old.get(key), new.get(key)) for key in sorted({*old, *new})]
    return [change for change in changes if change.old != change.new]


def _by_key(rows: Iterable[T]) -> Mapping[tuple[Any, ...], T]:
    return {row.key: row for row in rows}


def _sink_row(sink: SinkSettings) -> SinkRow:
    # Whichever sink has such an option means the same by it: "relay" keeps scheduled messages here until they are due.
    given_early = getattr(sink.options, "schedule", "relay") != "relay"
    hand_over = sink.sink_class.hand_over_s if given_early else None
    return SinkRow(sink.name, sink.shards, sink.max_attempts, hand_over, sink.strict)


def _route_row(route: Route) -> RouteRow:
    return RouteRow(route.kind, route.sink, *route.share, route.shadow)
