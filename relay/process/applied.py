"""Whether the database's sinks are those that a relay is configured for, and what keeps them waiting."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from relay.config.settings import SinkSettings
from relay.errors import DatabaseUnavailable, RelayError
from relay.process.store import Store

log = structlog.get_logger("relay")


def check_sinks(store: Store, sinks: Sequence[SinkSettings]) -> None:
    """
    Raises:
        DatabaseUnavailable: nobody can say now.
        RelayError: `apply` was not run, or shards were changed on one side only: nothing would be claimed.
    """
    known = store.known_sinks()
    for sink in sinks:
        if sink.name not in known:
            raise RelayError(f"sink {sink.name} is not in the database: run relay apply")
        shards = known[sink.name].shards
        if shards != sink.shards:
            raise RelayError(
                f"sink {sink.name}: expected {shards} shards as in the database, got {sink.shards} from the"
                f" configuration: set shards, or run relay apply, or relay reshard {sink.name} {sink.shards}"
            )


class Drain:
    """Knows when nothing of these sinks is due or claimed, and says once what a person has to end."""

    def __init__(self, store: Store, sinks: Sequence[str]) -> None:
        self._store = store
        self._sinks = sinks
        self._said: set[str] = set()

    def is_done(self) -> bool:
        try:
            if self._store.is_drained(self._sinks):
                return True
            for name, known in self._store.known_sinks().items():
                if name in self._sinks and known.paused is not None and name not in self._said:
                    self._said.add(name)
                    log.warning("waiting for a paused sink", sink=name, reason=known.paused)
        except DatabaseUnavailable:
            pass
        return False
