"""A thread of the process that outlives what nobody expected."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from relay.backoff import Backoff
from relay.process.stopping import Stopping

log = structlog.get_logger("relay")


def run_guarded(name: str, run: Callable[[], None], stopping: Stopping) -> None:
    """Run to its end, again and again until it has one.

    An unexpected exception, such as a lack of descriptors, must not end a thread for good: without heartbeats or
    maintenance the process would look alive and serve nobody.
    """
    backoff = Backoff(0.5, 30.0)
    while True:
        try:
            return run()
        except Exception:
            log.exception("thread failed: it starts again", thread=name)
        if stopping.wait_at_once(backoff.next()):
            return None
