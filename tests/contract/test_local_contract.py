"""The suite over Python functions, in threads and in child processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest

from sinks.base import Message, Sink, SinkConfig
from sinks.local.options import LocalOptions
from sinks.local.sink import LocalSink
from sinks.testing import Received, SinkContract
from tests import local_handlers


class TestLocalThreads(SinkContract):
    executor: Literal["thread", "process"] = "thread"
    one_step = 1
    works_long = True

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(local_handlers.FOLDER, str(tmp_path))
        self.folder = tmp_path

    def make(self, *, ordered: bool = False) -> Sink:
        handlers = {"*": "tests.local_handlers:take"}
        options = LocalOptions(handlers=handlers, executor=self.executor, concurrency=3)
        return LocalSink(SinkConfig("jobs", options, ordered=ordered))

    def received(self) -> Sequence[Received]:
        return [
            Received(note["message_id"], note["kind"], note["data"].encode("latin-1"))
            for note in local_handlers.notes(self.folder)
        ]

    def unsendable(self, message: Message) -> Message:
        return message._replace(headers={"bad": True})

    @contextmanager
    def outage(self) -> Iterator[None]:
        down = self.folder / "down"
        down.touch()
        yield
        down.unlink()


class TestLocalProcesses(TestLocalThreads):
    executor = "process"
