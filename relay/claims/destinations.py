"""What a relay knows of the destinations (queues, topics, streams) of one sink that are unavailable.

The database remembers them (`relay.destinations`), so that all relays together send one probe at a time. This is one
relay's view of it: what goes to such a destination is parked without being sent, unless it was let go as a probe.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from relay.claims.claim import Claim, Finding
from sinks.base import DELIVERED, Hold, Message, Outcome, Retry, Sink

NEWS_S = 2.0
"""For so long what a worker has just learnt is newer than what the database may say: it is not settled yet."""

BEHIND = Retry("not sent: an earlier message of its key was not delivered")


class HeldBack(Hold):
    """The outcome of a message that was not sent, as its destination is known to be unavailable."""


class Destinations:
    """Shared by the workers of one sink in a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._name_of: Callable[[Message], str | None] = lambda message: None
        self._unavailable: dict[str, str] = {}
        self._probed_by_circuit: frozenset[str] = frozenset()
        self._flowing = False
        self._learnt_at = -NEWS_S
        self.sole: str | None = None
        """The only destination that this sink has; None: messages decide, or nobody knows."""

    def of(self, sink: Sink) -> None:
        """Learn from a sink where its messages go."""
        self._name_of, self.sole = sink.destination, sink.sole_destination

    def refresh(self, unavailable: Mapping[str, str], probed_by_circuit: frozenset[str]) -> None:
        """Take over what the database says: reasons by name, and those for which nothing is parked."""
        with self._lock:
            self._probed_by_circuit = probed_by_circuit
            if time.monotonic() - self._learnt_at >= NEWS_S:
                self._unavailable = dict(unavailable)

    @property
    def blocked(self) -> str | None:
        """Why nothing of this sink is delivered, where every destination that was tried is unavailable."""
        if self._flowing:
            return None
        return next((named(name, reason) for name, reason in list(self._unavailable.items())), None)

    def hold_back(self, claim: Claim) -> dict[int, Outcome]:
        """Outcomes, by position, of messages of a claim that must not be sent now."""
        unavailable = self._unavailable
        if not unavailable or unavailable.keys() == {self.sole}:
            return {}
        held: dict[int, Outcome] = {}
        stuck: set[str | None] = set()
        for position, message in enumerate(claim.messages):
            if message.key in stuck:
                held[position] = BEHIND
            elif not claim.lets_go(message):
                name = self._name(message)
                if name is not None and name != self.sole and name in unavailable:
                    held[position] = HeldBack(unavailable[name], name)
                    if claim.ordered and message.key is not None:
                        stuck.add(message.key)
        return held

    def findings(self, claim: Claim, outcomes: Sequence[Outcome]) -> dict[str, Finding]:
        """What the outcomes of a claim say of destinations, by name; of those without any trouble nothing."""
        found: dict[str, Finding] = {}
        for message, outcome in zip(claim.messages, outcomes, strict=True):
            if isinstance(outcome, Hold) and outcome.destination:
                finding = found.setdefault(outcome.destination, Finding(parked=outcome.destination != self.sole))
                finding.reason = finding.reason or outcome.reason
                if not isinstance(outcome, HeldBack):
                    finding.refused = True
                    finding.probe = finding.probe or claim.lets_go(message)
        if not (found or self._unavailable or self._probed_by_circuit or claim.probes):
            return found
        delivered = [m for m, outcome in zip(claim.messages, outcomes, strict=True) if outcome == DELIVERED]
        for message in delivered:
            name = claim.probes.get(message.id) or self._name(message)
            if name in found or name in self._unavailable or message.id in claim.probes:
                found.setdefault(str(name), Finding()).delivered += 1
        if delivered:
            for name in self._probed_by_circuit - found.keys():
                found[name] = Finding(delivered=1)
        self._learn(found, flows=bool(delivered))
        return found

    def _learn(self, found: Mapping[str, Finding], *, flows: bool) -> None:
        with self._lock:
            known = self._unavailable
            self._flowing = flows or (self._flowing and bool(known))
            left = dict(known)
            for name, finding in found.items():
                if finding.works:
                    finding.news = left.pop(name, None) is not None
                elif finding.refused:
                    finding.news = name not in known
                    left[name] = finding.reason
            if left != known:
                self._learnt_at = time.monotonic()
            self._unavailable = left

    def _name(self, message: Message) -> str | None:
        try:
            return self._name_of(message)
        except Exception:  # noqa: BLE001 - a sink is anybody's code; the send will say what is wrong
            return None


def named(destination: str, reason: str) -> str:
    """A reason that names its destination."""
    return reason if destination in reason else f"{destination}: {reason}"
