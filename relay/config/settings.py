"""The configuration: read, checked once and as a whole, then frozen.

Three ways to read it: `load` refuses whatever is wrong; `load_usable` leaves out sinks that cannot be used, so that one
of them stops nobody else; `load_base` looks at no sink, for commands that need no broker.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from relay.config.check import Checker
from relay.config.masking import mask_url
from relay.config.models import (
    SHARDS,
    UNROUTED,
    BaseSettings,
    DatabaseSettings,
    LogSettings,
    Route,
    Settings,
    SinkKeys,
    SinkSettings,
)
from relay.config.registry import SinkTypeError, UnknownSinkType, load_sink
from relay.config.sources import Sources, read_sources
from relay.config.tree import KeyPath, nearest
from relay.errors import ConfigError
from sinks.base import BadClient, BadOption

__all__ = [
    "SHARDS",
    "UNROUTED",
    "BaseSettings",
    "DatabaseSettings",
    "LogSettings",
    "Route",
    "Settings",
    "SinkKeys",
    "SinkSettings",
    "load",
    "load_base",
    "load_usable",
    "load_with_sources",
    "reload_sink",
]

_SINK_NAME: Final = re.compile(r"[a-z0-9_-]{1,63}")


class _Shape(BaseModel):
    """The sections of a file."""

    model_config = ConfigDict(extra="forbid")

    database: dict[str, Any] = Field(default_factory=dict)
    sinks: dict[str, dict[str, Any]] = Field(default_factory=dict)
    routes: list[dict[str, Any]] = Field(default_factory=list)
    log: dict[str, Any] = Field(default_factory=dict)


def load(config: Path | None, env: Mapping[str, str], *, clients: bool = True) -> Settings:
    """Read and check the configuration.

    Args:
        config: the file; else `RELAY_CONFIG` names it, else it is `./relay.toml`, which may be missing.
        env: the environment: overrides, and what `${NAME}` stands for.
        clients: whether the brokers' libraries check their own options, too.

    Raises:
        ConfigError: with every problem that there is.
    """
    return load_with_sources(config, env, clients=clients)[0]


def load_with_sources(config: Path | None, env: Mapping[str, str], *, clients: bool = True) -> tuple[Settings, Sources]:
    """As `load`; also where each value came from."""
    checker, parts = _read(config, env)
    parts["sinks"] = {name: _sink(checker, name, clients=clients) for name in checker.at("sinks") or ()}
    checker.sources.resolve(("routes",))
    parts["routes"] = [_route(checker, index) for index in range(len(checker.at("routes") or ()))]
    _refuse_problems(checker)
    return Settings.model_validate(parts), checker.sources


def load_usable(config: Path | None, env: Mapping[str, str]) -> Settings:
    """As `load`, for who serves sinks: one that cannot be used is left out, and `Settings.broken` says why. So are
    routes, which only `relay apply` needs.

    Raises:
        ConfigError: something is wrong that is not about one sink.
    """
    checker, parts = _read(config, env)
    _refuse_problems(checker)
    sinks, broken = {}, {}
    for name in checker.at("sinks") or ():
        sink = _sink(checker, name)
        if sink is None or checker.sources.problems:
            broken[name] = list(checker.sources.problems)
            checker.sources.problems.clear()
        else:
            sinks[name] = sink
    return Settings.model_validate({**parts, "sinks": sinks, "broken": broken, "routes": []})


def load_base(config: Path | None, env: Mapping[str, str]) -> BaseSettings:
    """As `load`, for commands that need no broker.

    Raises:
        ConfigError: something is wrong that is not about one sink.
    """
    checker, parts = _read(config, env)
    _refuse_problems(checker)
    return BaseSettings.model_validate(parts)


def reload_sink(settings: Settings, name: str) -> SinkSettings:
    """One sink as the same configuration makes it now: what it refers to is read anew.

    Raises:
        ConfigError: with everything that is wrong with it.
    """
    checker = Checker(settings.sources.copy())
    sink = _sink(checker, name)
    if sink is None or checker.sources.problems:
        raise ConfigError(checker.sources.problems)
    return sink


def _read(config: Path | None, env: Mapping[str, str]) -> tuple[Checker, dict[str, Any]]:
    """What `BaseSettings` are made of; problems are noted."""
    known = {section: model.model_fields for section, model in (("database", DatabaseSettings), ("log", LogSettings))}
    sources = read_sources(config, env, {**known, "sinks": [*SinkKeys.model_fields, "url"]})
    checker = Checker(sources)
    checker.shape(_Shape)
    for section in known:
        sources.resolve((section,))
    parts = {
        "database": checker.model(DatabaseSettings, ("database",)),
        "log": checker.model(LogSettings, ("log",)),
        "shards": {name: _shards(sources, name) for name in checker.at("sinks") or ()},
        "sources": sources,
    }
    return checker, parts


def _refuse_problems(checker: Checker) -> None:
    if checker.sources.problems:
        raise ConfigError(checker.sources.problems)


def _shards(sources: Sources, name: str) -> int:
    """As far as it can be told; whatever is wrong is found where sinks are looked at."""
    checker = Checker(sources.copy())
    if not isinstance(checker.at("sinks", name), dict):
        return 0
    for key in ("order", "shards"):
        checker.sources.resolve(("sinks", name, key))
    keys = checker.model(SinkKeys, ("sinks", name), only=("type", "order", "shards"))
    return keys.shards if keys is not None and keys.order == "key" else 0


def _sink(checker: Checker, name: str, *, clients: bool = True) -> SinkSettings | None:
    path = ("sinks", name)
    checker.sources.resolve(path)
    if not _SINK_NAME.fullmatch(name) or name == UNROUTED:
        expected = f'a sink name of 1 to 63 characters from a-z, 0-9, "_" and "-", not "{UNROUTED}"'
        checker.sources.problem(path, expected, json.dumps(name, ensure_ascii=False))
    keys = checker.model(SinkKeys, path, only=SinkKeys.model_fields)
    sink_type = checker.at(*path, "type")
    # Without a type it is not known either which further keys are right.
    if not isinstance(sink_type, str):
        return None
    try:
        sink_class = load_sink(sink_type)
    except SinkTypeError as error:
        # What was written may hide a secret that the error's text shows.
        got = None if isinstance(error, UnknownSinkType) else error.got
        checker.sources.problem((*path, "type"), error.expected, got)
        return None
    options = checker.model(sink_class.Options, path, besides=SinkKeys.model_fields)
    if keys is None or options is None:
        return None
    shards = keys.shards if keys.order == "key" else 0
    defaults = {key: v for key, v in sink_class.defaults(options).items() if key not in keys.model_fields_set}
    values = {**dict(keys), **defaults, "shards": shards}
    sink = SinkSettings(**values, name=name, sink_class=sink_class, options=options)
    if clients:
        _try_client(checker, sink, path)
    return sink


def _try_client(checker: Checker, sink: SinkSettings, path: KeyPath) -> None:
    try:
        # Connects to nothing; but only the broker's library knows which options it has.
        sink.sink_class(sink.config).close()
    except BadClient as error:
        for option, expected in error.expected.items():
            checker.sources.problem((*path, "client", option), expected)
    except BadOption as error:
        checker.sources.problem((*path, error.name), error.expected)
    except ValueError as error:
        checker.sources.problem((*path, "client"), str(error))
    except Exception as error:  # noqa: BLE001 - a library may raise anything over a file that is missing or no certificate
        words = f"options that the broker's library takes ({type(error).__name__}: {mask_url(str(error))})"
        checker.sources.problem((*path, "client"), words)


def _route(checker: Checker, index: int) -> Route | None:
    path = ("routes", index)
    sink, sinks = checker.at(*path, "sink"), list(checker.at("sinks") or ())
    if isinstance(sink, str) and sink not in sinks:
        checker.sources.problem((*path, "sink"), f"a configured sink ({nearest(sink, sinks)})")
    return checker.model(Route, path)
