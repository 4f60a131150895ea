"""A sink of somebody else, a package of its own, is found by its type and passes the suite."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from relay.config.registry import load_sink
from sinks.base import Message, Sink, SinkConfig
from sinks.testing import Received, SinkContract


class TestScripted(SinkContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path
        self._script()

    def _script(self, **keys: Any) -> None:
        text = json.dumps({"kinds": {"unsendable": "reject"}, **keys})
        (self.folder / "script.json").write_text(text)

    def make(self, *, ordered: bool = False) -> Sink:
        sink_class = load_sink("scripted")
        options = sink_class.Options.model_validate({"folder": self.folder})
        return sink_class(SinkConfig("scripted", options, send_timeout=5, ordered=ordered))

    def received(self) -> Sequence[Received]:
        file = self.folder / "delivered.jsonl"
        lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [Received(line["message_id"], line["kind"], line["data"].encode("latin-1")) for line in lines]

    def unsendable(self, message: Message) -> Message:
        return message._replace(kind="unsendable")

    @contextmanager
    def outage(self) -> Iterator[None]:
        self._script(batch="unavailable")
        yield
        self._script()
