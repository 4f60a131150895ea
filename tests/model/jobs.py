"""What local sinks run. One function for each of them, so that each has a file of what was done.

A payload is [number, key, what to do…]: such jobs fail as they say, until the file "healed" is there.
"""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

from sinks.local import Hold, Message, Reject, Retry

FOLDER = "MODEL_FOLDER"
LONGEST_S = 0.03


def local_threads(message: Message) -> None:
    _work(message, "local_threads")


def local_processes(message: Message) -> None:
    _work(message, "local_processes")


def local_skip(message: Message) -> None:
    _work(message, "local_skip")


def local_block(message: Message) -> None:
    _work(message, "local_block")


def _work(message: Message, name: str) -> None:
    folder = Path(os.environ[FOLDER])
    number, key, *what = message.args
    if not (folder / "healed").exists():
        if (folder / "down").exists():
            raise Hold("the test switched it off")
        match what:
            case ["fail", times] if message.attempts <= times:
                raise Retry("as the message says", random.uniform(0, 0.5))
            case ["error", times] if message.attempts <= times:
                raise KeyError(number)
            case ["exit", times] if message.attempts <= times:
                raise SystemExit(3)
            case ["reject"]:
                raise Reject("as the message says")
            case _:
                pass
    time.sleep(random.uniform(0, LONGEST_S))
    # One write at the end of the file: processes do not mix their lines.
    file = os.open(folder / f"{name}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(file, json.dumps([number, key]).encode() + b"\n")
    os.close(file)
