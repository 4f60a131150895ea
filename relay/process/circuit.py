"""What a sink's trouble does to its senders.

closed ──failed──▶ open ──after a while──▶ probing, one sender with few messages ──worked──▶ ramping ──▶ closed

A broker that is down is not a message's fault, so nothing is sent at full size until a probe came back, and a
broker that comes back is not run over: what may be claimed doubles with each success.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import structlog

from relay.backoff import Backoff
from relay.claims.answers import checked, tidy, where, why
from relay.config.settings import SinkSettings
from relay.errors import RelayError
from relay.process.leases import Lease
from relay.process.stopping import Stopping
from sinks.base import Batch, Outcome, Sink, SinkUnavailable

log = structlog.get_logger("relay")

PROBE_MESSAGES = 10
FIRST_PROBE_S = 0.25
LONGEST_PROBE_S = 4.0
"""A broker that is back is noticed within this time."""


class Circuit:
    """One sink's circuit, shared by its senders in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._backoff = Backoff(FIRST_PROBE_S, LONGEST_PROBE_S)
        self._reason: str | None = None
        self._probe_at = 0.0
        self._prober: object | None = None
        self.unsettled: dict[object, str] = {}
        """Why workers cannot settle what they sent; they claim nothing meanwhile."""
        self._limit: int | None = None
        self._steady: int | None = None
        """Up to here the limit doubles, after the sink was throttled; None: up to the full size."""

    @property
    def reason(self) -> str | None:
        """Why it is open; None while it is closed."""
        return self._reason

    def settles(self, worker: object, reason: str | None) -> bool:
        """Why a worker cannot settle its claim; None: it can. True where that is news."""
        with self._lock:
            if reason is None:
                return self.unsettled.pop(worker, None) is not None
            news = worker not in self.unsettled
            self.unsettled[worker] = reason
            return news

    def allowance(self, sender: object, full: int) -> int:
        """How many messages this sender may claim now; 0 = wait."""
        with self._lock:
            if self._reason is None:
                return full if self._limit is None else min(full, self._limit)
            if self._prober not in (None, sender) or time.monotonic() < self._probe_at:
                return 0
            self._prober = sender
            return min(full, PROBE_MESSAGES)

    def wait(self) -> float:
        """Seconds until it is worth asking for an allowance again."""
        with self._lock:
            return min(max(self._probe_at - time.monotonic(), 0.05), 1.0)

    def failed(self, reason: str, delivered: int = 0) -> bool:
        """The sink is unwell. True where that is news.

        Args:
            delivered: how many messages of the batch it took all the same: it is throttled, not down. Once it works
                again, what may be claimed doubles up to half of that, and grows by a few from there on.
        """
        with self._lock:
            news = self._reason is None
            self._reason = reason
            if delivered:
                self._backoff.reset()
                self._steady = max(PROBE_MESSAGES, delivered // 2)
            self._limit = PROBE_MESSAGES
            self._prober = None
            self._probe_at = time.monotonic() + self._backoff.next()
            return news

    def worked(self, full: int) -> bool:
        """The sink answered. True where that is news."""
        if self._reason is None and self._limit is None:
            return False
        with self._lock:
            news = self._reason is not None
            self._reason = None
            self._prober = None
            self._backoff.reset()
            limit = self._limit or PROBE_MESSAGES
            if self._steady is None or limit < self._steady:
                self._limit = limit * 2 if self._steady is None else min(limit * 2, self._steady)
            else:
                self._limit = limit + PROBE_MESSAGES
            if self._limit >= full:
                self._limit = self._steady = None
            return news


class Sender:
    """One worker's way to its broker: the sink, opened and closed as needed, and what its answers tell the circuit.

    Args:
        sink: its own; no other thread uses it.
        circuit: shared by the sink's workers in this process.
        renew: gives the sink to go on with before it is opened: another where its secrets have changed.
    """

    def __init__(
        self,
        settings: SinkSettings,
        sink: Sink,
        circuit: Circuit,
        stopping: Stopping,
        renew: Callable[[Sink], Sink] | None = None,
    ) -> None:
        self.sink = sink
        self._renew = renew
        self._settings = settings
        self._circuit = circuit
        self._stopping = stopping
        self._open = False

    def allowance(self) -> int:
        """How many messages may be claimed now; 0: none, and `wait` says for how long."""
        limit = self._circuit.allowance(self, self._settings.batch_messages)
        return limit if limit and (self._open or self._opened()) else 0

    def wait(self) -> float:
        """Seconds until it is worth asking for an allowance again."""
        return self._circuit.wait()

    def send(self, batch: Batch, lease: Lease) -> tuple[Sequence[Outcome], bool]:
        """Outcomes, and whether the first answer already was one.

        Raises:
            SinkUnavailable, ClaimRevoked: as `Sink.send`.
            BaseException: whatever else a sink raises.
        """
        certain = True
        backoff = Backoff(0.05, 1.0)
        ask_until = time.monotonic() + self._settings.lease
        while True:
            try:
                if not self._open:
                    self.sink.open()
                    self._open = True
                outcomes = checked(self.sink.send(batch))
            except SinkUnavailable as error:
                certain = certain and not error.unknown
                if certain or not self.sink.fenced:
                    raise
                # The broker can say later what became of it, as long as nobody else asks under another token.
                if lease.lost() or self._stopping.is_set() or time.monotonic() > ask_until:
                    raise SinkUnavailable(error.reason, unknown=True) from error
                self.close()
                self.broken(error.reason)
                self._stopping.wait(backoff.next())
                continue
            if len(outcomes) != len(batch.messages) and not lease.lost():
                raise RelayError(f"sink gave {len(outcomes)} outcomes for {len(batch.messages)} messages")
            return outcomes, certain

    def nothing_to_send(self) -> None:
        """Only an answer of the broker closes an open circuit."""
        if self._circuit.reason is None:
            return
        try:
            answered = self.sink.ask()
        except BaseException as error:  # noqa: BLE001 - a sink may raise anything
            self.close()
            self.broken(why(error))
        else:
            if answered:
                self.worked()

    def worked(self) -> None:
        """The broker answered."""
        if self._circuit.worked(self._settings.batch_messages):
            log.info("sink works again", sink=self._settings.name)

    def broken(self, reason: str, delivered: int = 0) -> None:
        """The sink is unavailable. `delivered`: as `Circuit.failed`."""
        # At a stop a sink may hold back what it did not begin; nobody will probe it any more.
        if self._circuit.failed(tidy(reason), delivered) and not self._stopping.is_set():
            log.warning("sink is unwell", sink=self._settings.name, reason=tidy(reason))

    def close(self) -> None:
        self._open = False
        try:
            self.sink.close()
        except BaseException as error:  # noqa: BLE001 - a sink may raise anything
            log.warning("sink did not close", sink=self._settings.name, error=type(error).__name__, where=where(error))

    def _opened(self) -> bool:
        try:
            if self._renew is not None:
                self.sink = self._renew(self.sink)
            self.sink.open()
        except BaseException as error:  # noqa: BLE001 - a sink may raise anything
            self.close()
            self.broken(why(error) if isinstance(error, SinkUnavailable) else f"{why(error)} ({where(error)})")
            return False
        self._open = True
        return True
