"""What the relay counts, in Prometheus' terms. One registry a process."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

from relay.claims.claim import Verdict
from relay.claims.parking import Unavailable

OUTCOMES = ("delivered", "retried", "held", "dead")


class Metrics:
    """Counters of one relay process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._messages = Counter(
            "relay_messages", "Messages whose outcome was written.", ["sink", "outcome"], registry=self.registry
        )
        self._lost = Counter(
            "relay_lease_lost", "Claims that were lost before their settle.", ["sink"], registry=self.registry
        )
        self._reaped = Counter("relay_reaped", "Messages freed from expired claims.", ["sink"], registry=self.registry)
        self._replaced = Counter(
            "relay_clients_replaced",
            "Clients of brokers that failed for good and were replaced.",
            ["sink"],
            registry=self.registry,
        )
        self._send = Histogram(
            "relay_send_seconds", "Time that one batch took to send.", ["sink"], registry=self.registry
        )
        self._success = Gauge(
            "relay_last_delivery_timestamp_seconds",
            "When a message was last delivered, in seconds since 1970.",
            ["sink"],
            registry=self.registry,
        )
        Info("relay_build", "Release of this relay.", registry=self.registry).info({"version": version("outbox-relay")})
        self.listener_up = Gauge("relay_listener_up", "1 while notifications arrive.", registry=self.registry)
        self.notify_queue_usage = Gauge(
            "relay_notify_queue_usage", "Part of the notification queue that is in use.", registry=self.registry
        )

        self._unsettled = Gauge(
            "relay_unsettled_claims",
            "Claims whose outcome the database refuses to take.",
            ["sink"],
            registry=self.registry,
        )
        self._held = Gauge(
            "relay_destination_waiting_messages",
            "Messages that wait for an unavailable destination.",
            ["sink", "destination", "reason"],
            registry=self.registry,
        )
        self._held_for = Gauge(
            "relay_destination_unavailable_seconds",
            "Since when it is unavailable.",
            ["sink", "destination"],
            registry=self.registry,
        )

    def unsettled(self, sink: str, claims: int) -> None:
        """So many claims of a sink cannot be settled now."""
        self._unsettled.labels(sink).set(claims)

    def begin(self, sink: str) -> None:
        """A sink has its series from now on, whatever becomes of it."""
        for outcome in OUTCOMES:
            self._messages.labels(sink, outcome)
        for metric in (self._lost, self._reaped, self._replaced, self._send, self._unsettled):
            metric.labels(sink)

    def unavailable(self, destinations: Iterable[Unavailable]) -> None:
        """Replace the figures of destinations by these."""
        self._held.clear()
        self._held_for.clear()
        for one in destinations:
            self._held.labels(one.sink, one.name, one.reason).set(one.waiting)
            self._held_for.labels(one.sink, one.name).set(one.seconds)

    def sent(self, sink: str, seconds: float) -> None:
        self._send.labels(sink).observe(seconds)

    def settled(self, sink: str, verdict: Verdict) -> None:
        held = sum(len(ids) for _, _, ids in verdict.held) + sum(not key.counted for key in verdict.stuck)
        held += sum(len(finding.ids) for finding in verdict.destinations.values())
        counts = {
            "delivered": len(verdict.delivered) - len(verdict.arrived),
            "arrived_before": len(verdict.arrived),
            "retried": len(verdict.failed()),
            "dead": len(verdict.dead),
            "held": held,
        }
        if verdict.delivered:
            self._success.labels(sink).set_to_current_time()
        for outcome, count in counts.items():
            if count:
                self._messages.labels(sink, outcome).inc(count)

    def delivered(self) -> int:
        """Messages delivered since the start."""
        samples = (sample for metric in self._messages.collect() for sample in metric.samples)
        return sum(int(s.value) for s in samples if s.name.endswith("_total") and s.labels["outcome"] == "delivered")

    def lost(self, sink: str) -> None:
        self._lost.labels(sink).inc()

    def clients_replaced(self, sink: str, clients: int) -> None:
        self._replaced.labels(sink).inc(clients)

    def reaped(self, sink: str, messages: int) -> None:
        self._reaped.labels(sink).inc(messages)
