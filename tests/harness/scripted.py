"""The test's side of the scripted sink (`tests/sinks_plugin`): its script, and what it wrote down."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Delivery:
    """One copy of a message that the sink took."""

    at: float
    """Seconds since 1970."""
    pid: int
    sink: str
    token: str
    id: int
    message_id: str
    kind: str
    key: str | None
    attempts: int
    data: str

    @property
    def late(self) -> float:
        """Seconds from when it was due to when it was taken, of a message from `Outbox.insert_timed`."""
        return self.at - float(self.data)


@dataclass(frozen=True)
class Call:
    """One call of the sink's `send`."""

    at: float
    pid: int
    token: str
    ids: list[int]


class ScriptedBroker:
    """What scripted sinks with this folder do, and did."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def script(self, **keys: Any) -> None:
        """Replace the script; no keys: everything is delivered at once."""
        new = self.folder / "script.new"
        new.write_text(json.dumps(keys))
        new.replace(self.folder / "script.json")

    def deliveries(self) -> list[Delivery]:
        """Every copy, oldest first."""
        return [Delivery(**line) for line in self._lines("delivered.jsonl")]

    def calls(self) -> list[Call]:
        """Every call of `send`, oldest first."""
        return [Call(**line) for line in self._lines("calls.jsonl")]

    def copies(self) -> Counter[int]:
        """How many copies of each message, by id."""
        return Counter(delivery.id for delivery in self.deliveries())

    def tries(self) -> Counter[int]:
        """In how many calls each message was, by id."""
        return Counter(id for call in self.calls() for id in call.ids)

    def forget(self) -> None:
        """Drop what was written down."""
        for name in ("delivered.jsonl", "calls.jsonl"):
            (self.folder / name).unlink(missing_ok=True)

    def _lines(self, name: str) -> list[dict[str, Any]]:
        file = self.folder / name
        if not file.exists():
            return []
        # A line that is being written has no end yet.
        return [json.loads(line) for line in file.read_text().split("\n")[:-1]]
