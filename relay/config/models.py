"""What a configuration is made of: every key with its default and its checks, but those of one sink type.

Durations are float seconds and sizes int bytes, however they were written.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from relay.config.durations import format_duration
from relay.config.interpolation import BadReference
from relay.config.sources import Sources
from relay.config.types import Bucket, Count, Lower, Seconds, Shards, Size, Url
from relay.errors import DatabaseUnavailable
from sinks.base import Sink, SinkConfig, SinkOptions

SHARDS: Final = 64
"""Shards of an ordered sink that does not say how many."""

UNROUTED: Final = "unrouted"
"""The name under which messages without a route are kept; no sink may have it."""


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

    @field_validator("shadow")
    @classmethod
    def _not_yet(cls, shadow: bool) -> bool:
        if shadow:
            raise ValueError("false: shadow routes do not work yet, their copies would be delivered")
        return shadow


class BaseSettings(_Frozen):
    """What every command needs. Making it reads no secret of a broker and loads no sink class."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    database: DatabaseSettings
    log: LogSettings
    shards: dict[str, int]
    """Of each configured sink; 0 where it has no order. What is wrong with a sink is not looked at."""
    sources: Sources = Field(exclude=True, repr=False)

    def database_url(self, *, listen: bool = False) -> str:
        """The connection string, with what it refers to read anew: a password may have been rotated.

        Raises:
            DatabaseUnavailable: a file that it refers to cannot be read now.
        """
        given = self.database
        direct = listen and given.listen_url is not None
        key, url = ("listen_url", given.listen_url or given.url) if direct else ("url", given.url)
        try:
            found = self.sources.again(("database", key))
        except BadReference as error:
            raise DatabaseUnavailable(f"database.{key}: expected {error.expected}, got {error.got}") from error
        return found if isinstance(found, str) else url


class Settings(BaseSettings):
    """The whole configuration."""

    sinks: dict[str, SinkSettings]
    routes: tuple[Route, ...]
    broken: dict[str, list[str]] = Field(default_factory=dict)
    """Sinks that cannot be used as they are configured, each with what is wrong."""
