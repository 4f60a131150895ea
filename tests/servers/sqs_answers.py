"""What a stub of SQS is asked, and what it may be told to answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class Call(NamedTuple):
    """One request."""

    operation: str
    body: Mapping[str, Any]
    headers: Mapping[str, str]
    connection: int
    """Which of the server's connections it came by."""

    @property
    def entries(self) -> list[Mapping[str, Any]]:
        return list(self.body["Entries"])

    @property
    def queue(self) -> str:
        """The queue's name."""
        return str(self.body.get("QueueName") or self.body["QueueUrl"].rpartition("/")[2])


@dataclass(frozen=True)
class Fault:
    """An error for the whole call."""

    code: str
    status: int = 400
    text: str = "said the stub"
    shape: str = ""
    """The error's name in the JSON protocol, where the older `code` comes in a header."""


@dataclass(frozen=True)
class Failures:
    """A good answer in which some entries failed: code and `SenderFault` by position in the call."""

    entries: Mapping[int, tuple[str, bool]]
    text: str = "said the stub"


@dataclass(frozen=True)
class Silence:
    """Some of the entries are not spoken of."""

    positions: frozenset[int]


@dataclass(frozen=True)
class Cut:
    """The connection is reset instead of an answer."""

    taken: bool = False
    """Whether the entries are kept all the same."""
    half: bool = False
    """After half an answer."""


@dataclass(frozen=True)
class Slow:
    """The answer comes late."""

    seconds: float


@dataclass(frozen=True)
class Raw:
    """Whatever bytes, then the connection ends. The entries are kept."""

    data: bytes


Answer = Fault | Failures | Silence | Cut | Slow | Raw
