"""librdkafka's own log lines, as lines of the relay's log: each at the level that librdkafka gives it.

While a broker is down, each connection of each producer says so several times a second. So of lines of one kind one a
minute is written, with how many were left out. What was asked for by the option `debug` is written in full.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, Final

log = logging.getLogger("sinks.kafka")

EVERY_S: Final = 60.0
_KINDS: Final = 1000


class LibraryLog:
    """What librdkafka takes as its `logger`."""

    def __init__(self, every_s: float = EVERY_S) -> None:
        self._every_s = every_s
        self._lock = threading.Lock()
        self._kinds: dict[tuple[str, str, int], tuple[float, int]] = {}
        """By client, facility and level: when the last line was written, and how many were not since."""

    def log(self, level: int, message: str, *arguments: Any) -> None:
        """One line of librdkafka's; its first arguments are the facility, such as `FAIL`, and the client's name."""
        if level > logging.DEBUG and len(arguments) > 1:
            facility, client = str(arguments[0]), str(arguments[1])
            left_out = self._left_out((client.partition("#")[0], facility, level))
            if left_out is None:
                return
            if left_out:
                message, arguments = f"{message} (%d more lines like this were left out)", (*arguments, left_out)
        log.log(level, message, *arguments)

    def _left_out(self, kind: tuple[str, str, int]) -> int | None:
        """How many lines of this kind were left out before this one; None: leave it out too."""
        now = time.monotonic()
        with self._lock:
            written, left_out = self._kinds.get(kind, (-self._every_s, 0))
            if now - written < self._every_s:
                self._kinds[kind] = (written, left_out + 1)
                return None
            if len(self._kinds) >= _KINDS:
                self._kinds.clear()
            self._kinds[kind] = (now, 0)
            return left_out


library_log: Final = LibraryLog()
