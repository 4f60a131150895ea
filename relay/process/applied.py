"""Whether the database's sinks are those that a relay is configured for, and what keeps them waiting."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from relay.config.settings import SinkSettings
from relay.errors import DatabaseUnavailable
from relay.process.store import KnownSink, Store

log = structlog.get_logger("relay")


def unfit(sink: SinkSettings, known: KnownSink | None) -> str | None:
    """Why nothing of this sink would be claimed: `apply` was not run, or its order began or ended on one side only.

    Args:
        known: the sink as the database has it; None where it does not.
    """
    if known is None:
        return "it is not in the database: run relay apply"
    if known.shards and not sink.shards:
        return (
            f"the database keeps its order ({known.shards} shards), the configuration lacks: "
            f'order = "key", shards = {known.shards}'
        )
    if sink.shards and not known.shards:
        return (
            'the configuration has order = "key", the database keeps no order: run relay apply, or, where messages '
            f"wait, relay reshard {sink.name} {sink.shards}"
        )
    return None


class Drain:
    """Knows when nothing of these sinks is due or claimed, and says once what a person has to end."""

    def __init__(self, store: Store, sinks: Sequence[str]) -> None:
        self._store = store
        self._sinks = sinks
        self._said: set[str | tuple[str, str]] = set()

    def is_done(self) -> bool:
        try:
            if self._store.is_drained(self._sinks):
                return True
            for name, known in self._store.known_sinks().items():
                if name in self._sinks and known.paused is not None and name not in self._said:
                    self._said.add(name)
                    log.warning("waiting for a paused sink", sink=name, reason=known.paused)
            for one in self._store.unavailable():
                if one.sink in self._sinks and one.waiting and (one.sink, one.name) not in self._said:
                    self._said.add((one.sink, one.name))
                    log.warning(
                        "waiting for an unavailable destination",
                        sink=one.sink,
                        name=one.name,
                        waiting=one.waiting,
                        reason=one.reason,
                    )
        except DatabaseUnavailable:
            pass
        return False
