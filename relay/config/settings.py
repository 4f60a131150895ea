"""The configuration: read, checked once and as a whole, then frozen.

Durations are float seconds and sizes int bytes, however they were written.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from relay.config.check import Checker
from relay.config.durations import format_duration
from relay.config.registry import SinkTypeError, UnknownSinkType, load_sink
from relay.config.sources import Sources, read_sources
from relay.config.tree import nearest
from relay.config.types import Bucket, Count, Lower, Seconds, Shards, Size, Url
from relay.errors import ConfigError
from sinks.base import BadClient, Sink, SinkConfig, SinkOptions

SHARDS: Final = 64
"""Shards of an ordered sink that does not say how many."""

UNROUTED: Final = "unrouted"
"""The name under which messages without a route are kept; no sink may have it."""

_SINK_NAME: Final = re.compile(r"[a-z0-9_-]{1,63}")


class _Frozen(BaseModel):
    # Defaults are validated too: a default lease may be too short for a configured send time-out.
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class DatabaseSettings(_Frozen):
    """`[database]`"""

    url: Url
    listen_url: Url | None = None
    """A direct connection, where `url` goes through a pooler in transaction mode."""
    notify: bool = True
    """Whether this relay may ask writers for NOTIFY when it is idle."""
    timeout: Seconds = 30.0
    """What one statement may take, by this side's clock."""


class LogSettings(_Frozen):
    """`[log]`"""

    format: Literal["json", "human"] = Field(default_factory=lambda: "human" if sys.stderr.isatty() else "json")
    level: Annotated[Literal["debug", "info", "warning", "error"], Lower] = "info"


class Backoff(_Frozen):
    """Waiting times between a message's attempts: exponential from `base` to `max`, full jitter."""

    base: Seconds = 1.0
    max: Seconds = 600.0

    @field_validator("max")
    @classmethod
    def _not_below_base(cls, longest: float, info: ValidationInfo) -> float:
        base = info.data.get("base", 0.0)
        if longest < base:
            raise ValueError(f"at least base ({format_duration(base)})")
        return longest


class SinkKeys(_Frozen):
    """The keys that every `[sinks.NAME]` has. (`lease` follows `send_timeout`, which its check needs.)"""

    type: Annotated[str, Field(description="a sink type")]
    order: Literal["none", "key"] = "none"
    workers: Count = 1
    batch_messages: Count = 1000
    batch_bytes: Size = 4 * 2**20
    message_bytes: Size = 64 * 2**20
    """Most that one message may carry: a larger one becomes dead unread, as reading it might kill the relay."""
    send_timeout: Seconds = 10.0
    lease: Seconds = 30.0
    max_attempts: Count = 20
    backoff: Backoff = Field(default_factory=Backoff)
    after_dead: Literal["skip", "block"] = "skip"
    client: dict[str, Any] = Field(default_factory=dict)
    shards: Shards = SHARDS
    """Counts only where `order` is `"key"`."""
    strict: bool = False
    """Ordered sinks: writers of one key wait for each other."""

    @field_validator("lease")
    @classmethod
    def _twice_the_send_timeout(cls, lease: float, info: ValidationInfo) -> float:
        timeout = info.data.get("send_timeout", 0.0)
        if lease < 2 * timeout:
            raise ValueError(f"at least twice send_timeout ({format_duration(2 * timeout)})")
        return lease


class SinkSettings(SinkKeys):
    """One configured sink: `[sinks.NAME]` with its class and that class's own options."""

    name: str
    sink_class: type[Sink]
    options: SinkOptions
    shards: int
    """0 where `order` is `"none"`."""

    @property
    def ordered(self) -> bool:
        """Whether a key's messages are sent in id order."""
        return self.order == "key"

    @property
    def config(self) -> SinkConfig:
        """What an object of `sink_class` is made from."""
        return SinkConfig(self.name, self.options, self.send_timeout, self.ordered, self.client)


class Route(_Frozen):
    """One `[[routes]]`: kinds that match go to the sink, for the buckets `[low, high)` of 100 in `share`."""

    kind: Annotated[str, Field(min_length=1)]
    sink: str
    share: tuple[Bucket, Bucket] = (0, 100)
    shadow: bool = False

    @field_validator("share")
    @classmethod
    def _rising(cls, share: tuple[int, int]) -> tuple[int, int]:
        if share[0] >= share[1]:
            raise ValueError("two rising numbers from 0 to 100, such as [0, 50]")
        return share


class Settings(_Frozen):
    """The whole configuration."""

    database: DatabaseSettings
    sinks: dict[str, SinkSettings]
    routes: tuple[Route, ...]
    log: LogSettings


class _Shape(_Frozen):
    """The sections of a file."""

    database: dict[str, Any] = Field(default_factory=dict)
    sinks: dict[str, dict[str, Any]] = Field(default_factory=dict)
    routes: list[dict[str, Any]] = Field(default_factory=list)
    log: dict[str, Any] = Field(default_factory=dict)


def load(config: Path | None, env: Mapping[str, str]) -> Settings:
    """Read and check the configuration.

    Args:
        config: the file; else `RELAY_CONFIG` names it, else it is `./relay.toml`, which may be missing.
        env: the environment: overrides, and what `${NAME}` stands for.

    Raises:
        ConfigError: with every problem that there is.
    """
    return load_with_sources(config, env)[0]


def load_with_sources(config: Path | None, env: Mapping[str, str]) -> tuple[Settings, Sources]:
    """As `load`; also where each value came from."""
    known = {section: model.model_fields for section, model in (("database", DatabaseSettings), ("log", LogSettings))}
    sources = read_sources(config, env, {**known, "sinks": [*SinkKeys.model_fields, "url"]})
    checker = Checker(sources)
    checker.shape(_Shape)
    parts = {
        "database": checker.model(DatabaseSettings, ("database",)),
        "sinks": {name: _sink(checker, name) for name in checker.at("sinks") or ()},
        "routes": [_route(checker, index) for index in range(len(checker.at("routes") or ()))],
        "log": checker.model(LogSettings, ("log",)),
    }
    if sources.problems:
        raise ConfigError(sources.problems)
    return Settings.model_validate(parts), sources


def _sink(checker: Checker, name: str) -> SinkSettings | None:
    path = ("sinks", name)
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
    try:
        # Connects to nothing; but only the broker's library knows which options it has.
        sink_class(sink.config).close()
    except BadClient as error:
        for option, expected in error.expected.items():
            checker.sources.problem((*path, "client", option), expected)
    except ValueError as error:
        checker.sources.problem((*path, "client"), str(error))
    return sink


def _route(checker: Checker, index: int) -> Route | None:
    path = ("routes", index)
    sink, sinks = checker.at(*path, "sink"), list(checker.at("sinks") or ())
    if isinstance(sink, str) and sink not in sinks:
        checker.sources.problem((*path, "sink"), f"a configured sink ({nearest(sink, sinks)})")
    return checker.model(Route, path)
