"""The configuration as it came out: every key, its value with secrets hidden, and where that came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from relay.config.masking import MASK, mask_value
from relay.config.settings import Settings, SinkSettings, load_with_sources
from relay.config.sources import Sources, setting_names
from relay.config.tree import MISSING, KeyPath, find, spell

_JSON = (str, int, float, dict, list, tuple, type(None))


class Effective(NamedTuple):
    """One setting. `origin` is `default`, `file NAME` or `environment NAME`."""

    key: str
    value: Any
    origin: str


def load_effective(config: Path | None, env: Mapping[str, str]) -> list[Effective]:
    """Every setting in effect.

    Raises:
        ConfigError: the configuration has problems; see `relay.settings.load`.
    """
    settings, sources = load_with_sources(config, env)
    return [
        Effective(spell(path), _shown(sources, path, value), _origin(sources, path))
        for path, value in _leaves(_dump(settings), ())
    ]


def _dump(settings: Settings) -> dict[str, Any]:
    return {
        "database": settings.database.model_dump(),
        "sinks": {name: _dump_sink(sink) for name, sink in settings.sinks.items()},
        "routes": [route.model_dump() for route in settings.routes],
        "log": settings.log.model_dump(),
    }


def _dump_sink(sink: SinkSettings) -> dict[str, Any]:
    return sink.model_dump(exclude={"name", "sink_class", "options"}) | sink.options.model_dump()


def _leaves(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    """What is not a table with something in it. Of the lists only `routes` is one of tables."""
    if isinstance(value, dict) and (value or len(path) < 2):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif path == ("routes",):
        for index, inner in enumerate(value):
            yield from _leaves(inner, (*path, index))
    else:
        yield path, value


def _shown(sources: Sources, path: KeyPath, value: Any) -> Any:
    written = sources.shown(path)
    if MASK in str(written):
        return written
    # A sink's options may hold objects of its own, such as a template: they show themselves as they were written.
    plain = value if isinstance(value, _JSON) else str(value)
    return mask_value(setting_names(path), plain)


def _origin(sources: Sources, path: KeyPath) -> str:
    if find(sources.tree, path) is MISSING:
        return "default"
    variable = sources.variable(path)
    return f"environment {variable}" if variable else f"file {sources.file}"
