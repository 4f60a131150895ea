"""Handlers that write down what they were called with, in the folder that TEST_JOBS_FOLDER names."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from sinks.local import Hold, Message, Reject, Retry

FOLDER = "TEST_JOBS_FOLDER"


def folder() -> Path:
    return Path(os.environ[FOLDER])


def note(message: Message, what: str) -> None:
    """One write at the end of the file: processes do not mix their lines, and a killed one loses none."""
    line = {
        "what": what,
        "at": time.time(),
        "pid": os.getpid(),
        "id": message.id,
        "kind": message.kind,
        "message_id": str(message.message_id),
        "data": message.data.decode("latin-1"),
        "attempts": message.attempts,
    }
    file = os.open(folder() / "notes.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(file, json.dumps(line).encode() + b"\n")
    os.close(file)


def notes(where: Path, what: str | None = None) -> list[dict[str, Any]]:
    """What was written down, oldest first."""
    file = where / "notes.jsonl"
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    return [line for line in map(json.loads, lines) if what in (None, line["what"])]


def take(message: Message) -> None:
    """For the contract suite."""
    if (folder() / "down").exists():
        raise Hold("as the test says")
    if message.headers.get("bad"):
        raise Reject("as the message says")
    note(message, "done")


def work(message: Message) -> None:
    """Notes that it begins, does what the payload says, and notes that it is done."""
    note(message, "begun")
    for step in message.args[0].items():
        match step:
            case ("sleep", seconds):
                _sleep(seconds)
            case ("block", seconds):  # in C, with the interpreter's lock released
                ctypes.CDLL(None).usleep(int(seconds * 1_000_000))
            case ("exit", code):
                os._exit(code)
            case ("signal", number):
                os.kill(os.getpid(), number)
                time.sleep(60)
            case ("raise", name):
                raise {
                    "Retry": Retry("come again", 0.2),
                    "Reject": Reject("never"),
                    "Hold": Hold("it is down"),
                    "SystemExit": SystemExit(3),
                    "KeyError": KeyError("secret-of-the-payload"),
                    "Reject of an object": Reject(Unloadable()),  # type: ignore[arg-type]
                    "Retry of an object": Retry(Unloadable()),  # type: ignore[arg-type]
                    "Hold of an object": Hold(Unloadable()),  # type: ignore[arg-type]
                    "a Reject without reason": Unfinished(),
                }[name]
            case ("fork and die", seconds):
                if os.fork() == 0:
                    time.sleep(seconds)
                    os._exit(0)
                os._exit(9)
            case ("program", seconds):
                program = subprocess.Popen(["sleep", str(seconds)])
                note(message, f"program {program.pid}")
                program.wait()
            case ("until", name):
                while not (folder() / name).exists():
                    _sleep(0.01)
            case unknown:
                raise ValueError(unknown)
    note(message, "done")


def _sleep(seconds: float) -> None:
    # In small steps: only between two of them can a thread be interrupted.
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until:
            time.sleep(0.01)
    except BaseException:
        (folder() / "interrupted").touch()
        raise


async def work_async(message: Message) -> None:
    """The same, for what is awaited."""
    note(message, "begun")
    for step in message.args[0].items():
        match step:
            case ("sleep", seconds):
                try:
                    await asyncio.sleep(seconds)
                except asyncio.CancelledError:
                    (folder() / "interrupted").touch()
                    raise
            case ("raise", "SystemExit"):
                sys.exit(3)
            case ("leave behind", "SystemExit"):
                LEFT.append(asyncio.create_task(_leave()))
            case ("raise", "Retry"):
                raise Retry("come again", 0.2)
            case unknown:
                raise ValueError(unknown)
    note(message, "done")


async def _leave() -> None:
    await asyncio.sleep(0.05)
    sys.exit(3)


LEFT: list[asyncio.Task[None]] = []
"""Tasks that nobody waits for: asyncio itself keeps only weak references."""


class Unloadable(Exception):
    """An application's exception that its process can make, and no other can load."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()

    def __str__(self) -> str:
        return "no stock"


class Unfinished(Reject):
    """An application's own Reject that forgets what a Reject needs."""

    def __init__(self) -> None:
        Exception.__init__(self)


not_a_function = 1
