"""One configured sink: whether it fits the database, whether another relay delivers it elsewhere, and why it waits."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from relay.config.masking import mask_url
from relay.config.settings import SinkSettings
from relay.process.store import KnownSink, Rival, Said

if TYPE_CHECKING:
    from relay.process.parts import Loops

BEGINS = "it begins"


class Candidate:
    """One configured sink."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.settings: SinkSettings | None = None
        self.written: Any = None
        """Its table in the configuration, to see whether it has changed."""
        self.broken: str | None = None
        """What is wrong with its configuration."""
        self.destination: str | None = None
        self.unfit: str | None = None
        """Why it cannot be served, whatever other relays do."""
        self.waits: str | None = BEGINS
        """Why it is not served; None where it is, or may be."""
        self.outdated = False
        """Whether its loops still have other settings."""
        self.loops: Loops | None = None

    def use(self, settings: SinkSettings) -> None:
        try:
            sender = settings.sink_class(settings.config)
            self.settings, self.destination, self.broken = settings, sender.fingerprint(), None
            sender.close()
        except Exception as error:  # noqa: BLE001 - of a sink that anybody may have written
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """It cannot be made, though it could be when the configuration was checked."""
        self.settings, self.broken = None, mask_url(f"{type(error).__name__}: {error}")

    def said(self) -> Said:
        if self.loops is not None:
            waits = self.waits or ("it takes up changed settings" if self.outdated else None)
            return Said(self.loops.destination, waits)
        # What cannot be served for a reason of its own keeps nobody waiting.
        return Said(None if self.unfit else self.destination, self.waits or BEGINS)


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


def rival_of(sink: Candidate, since: float | None, worker: str, rivals: Collection[Rival]) -> str | None:
    """Whether another relay delivers this sink elsewhere, and was there first."""
    said = sink.said().destination
    for rival in rivals:
        if rival.sink != sink.name or rival.destination == said or since is None:
            continue
        first = (rival.since, rival.worker) < (since, worker)
        if first or (rival.waits is None and sink.loops is None):
            return (
                f"relay {rival.worker} delivers it to {rival.destination}, this one would deliver it to {said}:"
                " it waits until that relay has ended, or has the same configuration"
            )
    return None
