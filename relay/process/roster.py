"""Which sinks this relay serves now: those of its configuration that fit the database, and that no other relay delivers
elsewhere. Whatever keeps a sink from being served is looked at again every few seconds, and stops no other sink.

The configuration is read again when somebody asks for it (SIGHUP), and when the database's sinks have changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

import structlog

from relay.config.settings import Settings, reload_sink
from relay.errors import ConfigError, UsageError
from relay.process.candidate import BEGINS, Candidate, rival_of, unfit
from relay.process.parts import Loops, Parts
from relay.process.poll import Poll
from relay.process.store import KnownSink, Rival, Said, Store

log = structlog.get_logger("relay")

RETRY_S = 5.0
"""So often a sink that cannot be used is tried again: a file that was missing may be there."""
RIVALS_S = 10.0
"""So often it is looked, of sinks that are served, whether another relay delivers them elsewhere."""
END_S = 0.2
"""So long it is waited for loops to end; then they are looked at the next time."""


class Roster:
    """The sinks of one relay. `look` is called by one thread; the rest may be asked by any.

    Args:
        settings: the configuration as it was at the start.
        load: reads it again.
        only: names of the sinks to serve; empty = all.
    """

    def __init__(
        self, settings: Settings, load: Callable[[], Settings], parts: Parts, store: Store, only: Collection[str] = ()
    ) -> None:
        self._load = load
        self._parts = parts
        self._store = store
        self._only = only
        self._settings = settings
        self._sinks: dict[str, Candidate] = {}
        self._known: dict[str, int] | None = None
        self._retried_at = self._asked_at = time.monotonic()
        self._asked = False
        self.began = False
        """Whether it has looked once."""
        self._take_up(settings)
        if not any(sink.settings for sink in self._sinks.values()):
            raise _nothing(settings, [sink.broken for sink in self._sinks.values() if sink.broken])

    @property
    def names(self) -> list[str]:
        """Every sink that it should serve."""
        return list(self._sinks)

    @property
    def polls(self) -> list[Poll]:
        return [poll for loops in self._running() for poll in loops.polls]

    def shortest_lease(self) -> float:
        """Of the sinks that it may serve, in seconds."""
        return min((sink.settings.lease for sink in list(self._sinks.values()) if sink.settings), default=30.0)

    def said(self) -> dict[str, Said]:
        """What others should know of each sink."""
        return {sink.name: sink.said() for sink in list(self._sinks.values())}

    def healthy(self) -> bool:
        return all(loops.healthy() for loops in self._running())

    def alive(self) -> bool:
        """Whether any loop still runs."""
        return any(not loops.ended() for loops in self._running())

    def reload(self) -> None:
        """Read the configuration again, soon. Safe to call in a signal handler."""
        self._asked = True

    def look(self, register: Callable[[], Mapping[str, float]]) -> None:
        """Begin and end what has to be.

        Args:
            register: tells the others what `said` says now; answers since when each of these sinks is said to be
                delivered where it is, in seconds since 1970.
        """
        known = self._store.known_sinks()
        shards = {name: sink.shards for name, sink in known.items()}
        if self._asked or self._known not in (None, shards):
            self._asked = False
            self._read_again()
        self._known = shards
        self._try_broken()
        while self._round(known, register):
            pass
        self.began = True
        register()

    def _round(self, known: Mapping[str, KnownSink], register: Callable[[], Mapping[str, float]]) -> bool:
        """Look at each sink once; True where loops ended, so that others may begin."""
        for sink in self._sinks.values():
            sink.unfit = sink.broken or (unfit(sink.settings, known.get(sink.name)) if sink.settings else None)
        # Said before the others are looked at: of two that begin at once, one sees the other.
        since = register()
        rivals = self._rivals()
        ended = False
        for sink in list(self._sinks.values()):
            self._note(sink, sink.unfit or rival_of(sink, since.get(sink.name), self._parts.worker, rivals))
            ended = self._end(sink) or ended
            self._begin(sink, known.get(sink.name))
        return ended

    def _rivals(self) -> list[Rival]:
        """What other relays say; now and then only, while every sink is served and nothing is to begin."""
        settled = all(sink.loops is not None and not sink.outdated for sink in self._sinks.values())
        if settled and time.monotonic() - self._asked_at < RIVALS_S:
            return []
        self._asked_at = time.monotonic()
        return self._store.rivals(self._parts.worker)

    def _running(self) -> list[Loops]:
        return [sink.loops for sink in list(self._sinks.values()) if sink.loops is not None]

    def _read_again(self) -> None:
        try:
            settings = self._load()
        except ConfigError as error:
            log.error("configuration is not taken up", problems=error.problems)
            return
        log.info("configuration read again")
        self._take_up(settings)

    def _take_up(self, settings: Settings) -> None:
        self._settings = settings
        wanted = [name for name in settings.shards if not self._only or name in self._only]
        for name in wanted:
            sink = self._sinks.setdefault(name, Candidate(name))
            self._parts.metrics.begin(name)
            written = settings.sources.tree.get("sinks", {}).get(name)
            if written == sink.written and not sink.broken and name in settings.sinks:
                continue
            if sink.loops is not None and name in settings.broken:
                log.error("configuration is not taken up", sink=name, problems=settings.broken[name])
                continue
            sink.outdated = sink.loops is not None
            sink.written = written
            if name in settings.sinks:
                sink.use(settings.sinks[name])
            else:
                sink.settings, sink.broken = None, "; ".join(settings.broken[name])
        for name in set(self._sinks) - set(wanted):
            self._sinks[name].settings = None
            self._sinks[name].broken = "it is not in the configuration any more"

    def _try_broken(self) -> None:
        if time.monotonic() - self._retried_at < RETRY_S:
            return
        self._retried_at = time.monotonic()
        for sink in self._sinks.values():
            if sink.broken and sink.name in self._settings.shards:
                try:
                    sink.use(reload_sink(self._settings, sink.name))
                except ConfigError as error:
                    sink.broken = "; ".join(error.problems)

    def _note(self, sink: Candidate, reason: str | None) -> None:
        if reason is not None and reason != sink.waits:
            log.warning("sink is not served", sink=sink.name, reason=reason)
        elif reason is None and sink.waits is not None and self.began:
            log.info("sink is served", sink=sink.name)
        sink.waits = reason

    def _end(self, sink: Candidate) -> bool:
        """End loops that should not run; True where that is done. Others may begin in the next round, once it is said
        where they deliver."""
        loops = sink.loops
        if loops is None or not (sink.waits or sink.outdated):
            return False
        loops.stop()
        if not loops.ended(within=END_S):
            return False
        sink.loops, sink.outdated, sink.waits = None, False, sink.waits or BEGINS
        return True

    def _begin(self, sink: Candidate, known: KnownSink | None) -> None:
        if sink.loops is not None:
            return
        if sink.settings is not None and known is not None and not sink.waits:
            if sink.settings.shards != known.shards:
                # They count; nothing of a configuration with another number is wrong but what it would apply.
                log.warning("sink has other shards in the database", sink=sink.name, shards=known.shards)
            settings = sink.settings.model_copy(update={"shards": known.shards})
            try:
                sink.loops = self._parts.loops(self._settings, settings, sink.destination or "")
            except Exception as error:  # noqa: BLE001 - as in `use`
                sink.fail(error)
            else:
                sink.loops.start()
        elif sink.name not in self._settings.shards:
            del self._sinks[sink.name]


def _nothing(settings: Settings, broken: list[str]) -> UsageError:
    if broken:
        return ConfigError(broken)
    where = settings.sources.file or "there is no relay.toml here (relay init writes one, --config names another)"
    return UsageError(f"expected sinks to serve under [sinks.NAME], got none: {where}")
