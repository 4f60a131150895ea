"""Configuration keys of `type = "local"`."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, field_validator

from sinks.base import SinkOptions
from sinks.local.handlers import REFERENCE

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def _seconds(value: object) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)", str(value))
    seconds = float(found[1]) * _UNITS[found[2]] if found else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= 30 * _UNITS["d"]:
        raise ValueError('a duration above zero and up to 30 days, such as "500ms", "30s", "10m", "1h"')
    return float(seconds)


class LocalOptions(SinkOptions):
    """What runs, and where."""

    handlers: Annotated[dict[str, str], Field(min_length=1, description='a table such as { "Kind" = "module:name" }')]
    """`module:function` by kind. In a kind, * stands for any run of characters, ? for one; a kind of its own counts
    first, then the first pattern in the order of the file."""
    executor: Literal["thread", "process"] = "thread"
    """`"process"`: for work that computes, and for what may kill its process."""
    concurrency: Annotated[int, Field(ge=1, le=1000)] = 1
    """How many messages of one claim run at the same time."""
    timeout: Annotated[float, BeforeValidator(_seconds), PlainSerializer(lambda seconds: f"{seconds:g}s")] = 600.0
    """Seconds that one message may take."""

    @field_validator("handlers")
    @classmethod
    def _references(cls, handlers: dict[str, str]) -> dict[str, str]:
        for kind, name in handlers.items():
            if not kind or not REFERENCE.fullmatch(name):
                raise ValueError('"module:function" for each kind, such as "shop.jobs:send_receipt"')
        return handlers
