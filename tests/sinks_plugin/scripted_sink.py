"""A broker that does what a file says: `type = "scripted"`.

It is a package of its own, installed beside the relay as anybody's sink would be. Its folder holds

- ``script.json``: what to do, read again before every step, so that a test can change it while a send hangs;
- ``delivered.jsonl``: every message that was taken, one line a copy, written before anything else can go wrong;
- ``calls.jsonl``: every call of `send`, whatever came of it.

Keys of the script, all optional:

- ``open``: what opening does; ``batch``: what sending does before it looks at any message;
- ``kinds``: for each kind of message what becomes of it (default: delivered);
- ``delay``: seconds before a batch is looked at; ``each``: seconds for each message; ``burn``: seconds of computing;
- ``hang``: true, or the name of one sink: wait until it no longer is;
- ``replaced``: how many clients it has replaced;
- ``later``: what sending does once all messages are dealt with.

What can be done is in `_do`; it is a word, or an object with ``do`` and further facts.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sinks.base import (
    DELIVERED,
    Batch,
    ClaimRevoked,
    Delivered,
    Hold,
    Message,
    Outcome,
    Reject,
    Retry,
    Sink,
    SinkConfig,
    SinkOptions,
    SinkUnavailable,
)

STEP_S = 0.01


class Escape(BaseException):
    """What no `except Exception` catches."""


class ScriptedOptions(SinkOptions):
    """Configuration keys of `type = "scripted"`."""

    folder: Path
    """Where the script is read and the deliveries are written."""
    place: str = "here"
    """What tells this broker from another; several folders may stand for one."""
    keep_data: bool = True
    """Whether payloads are written down too."""
    destinations: Mapping[str, str] = {}
    """Where kinds of messages go, as the sink can tell before it sends them."""
    sole: str | None = None
    """Its only destination."""


class ScriptedSink(Sink):
    """Does what the script says."""

    Options = ScriptedOptions

    def __init__(self, config: SinkConfig) -> None:
        super().__init__(config)
        self._folder: Path = config.options.folder

    def fingerprint(self) -> str:
        return f"scripted {self.config.options.place}"

    @property
    def sole_destination(self) -> str | None:
        options: ScriptedOptions = self.config.options
        return options.sole

    def destination(self, message: Message) -> str | None:
        options: ScriptedOptions = self.config.options
        return options.destinations.get(message.kind)

    @property
    def clients_replaced(self) -> int:
        return int(self._script().get("replaced", 0))

    def open(self) -> None:
        _do(self._script().get("open", "deliver"))

    def send(self, batch: Batch) -> Sequence[Outcome]:
        if not batch.messages:
            return []
        ids = [message.id for message in batch.messages]
        self._write("calls.jsonl", {"at": time.time(), "pid": os.getpid(), "token": str(batch.token), "ids": ids})
        script = self._script()
        _do(script.get("batch", "deliver"))
        _burn(script.get("burn", 0.0))
        self._pause(script.get("delay", 0.0), batch)
        while self._script().get("hang") in (True, self.config.name):
            time.sleep(STEP_S)
        outcomes: list[Outcome] = []
        stuck: set[str] = set()
        for message in batch.messages:
            self._pause(script.get("each", 0.0), batch)
            if batch.lost():
                break
            outcomes.append(self._take(message, script.get("kinds", {}), batch, stuck))
        _do(script.get("later", "deliver"))
        if batch.lost():
            return outcomes + [Retry("the claim was lost")] * (len(ids) - len(outcomes))
        return outcomes

    def _take(self, message: Message, kinds: Mapping[str, Any], batch: Batch, stuck: set[str]) -> Outcome:
        outcome: Outcome = Retry("an earlier message of its key was not delivered")
        if message.key not in stuck:
            outcome = _do(kinds.get(message.kind, "deliver"))
        if isinstance(outcome, Delivered):
            self._write("delivered.jsonl", self._record(message, batch))
        elif self.config.ordered and message.key is not None:
            stuck.add(message.key)
        return outcome

    def _record(self, message: Message, batch: Batch) -> dict[str, Any]:
        return {
            "at": time.time(),
            "pid": os.getpid(),
            "sink": self.config.name,
            "token": str(batch.token),
            "id": message.id,
            "message_id": str(message.message_id),
            "kind": message.kind,
            "key": message.key,
            "attempts": message.attempts,
            "data": message.data.decode("latin-1") if self.config.options.keep_data else "",
        }

    def _script(self) -> dict[str, Any]:
        try:
            script: dict[str, Any] = json.loads((self._folder / "script.json").read_text())
        except FileNotFoundError:
            return {}
        return script

    def _write(self, name: str, record: Mapping[str, Any]) -> None:
        # One write at the end of the file: several processes do not mix their lines, and a killed one loses none.
        file = os.open(self._folder / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, json.dumps(record).encode() + b"\n")
        finally:
            os.close(file)

    def _pause(self, seconds: float, batch: Batch) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and not batch.lost():
            time.sleep(min(left, STEP_S))


def _burn(seconds: float) -> None:
    """Compute without a pause, holding on to the interpreter."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        sum(range(1000))


def _do(action: str | Mapping[str, Any]) -> Any:
    facts: Mapping[str, Any] = {"do": action} if isinstance(action, str) else action
    reason = facts.get("reason", "as the script says")
    match facts["do"]:
        case "deliver":
            return DELIVERED
        case "retry":
            return Retry(reason, float(facts.get("after", 0.0)))
        case "reject":
            return Reject(reason)
        case "hold":
            return Hold(reason, facts.get("destination"))
        case "unavailable":
            raise SinkUnavailable(reason, unknown=facts.get("unknown", False))
        case "revoked":
            raise ClaimRevoked(reason)
        case "error":
            raise RuntimeError(reason)
        case "escape":
            raise Escape(reason)
        case "nothing":
            return None
        case "exit":
            os._exit(facts.get("code", 9))
        case unknown:
            raise ValueError(f"no such action: {unknown}")
