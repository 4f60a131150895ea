"""One claim loop: claim → send → settle, each its own short transaction, none open during a send.

Duties of an `Engine`, which one thread runs:

1. claim no more than the circuit, the batch limits and the last batch's size allow;
2. send, and ask again where the answer was unknown and the sink can tell;
3. settle what the sink said; if the database refuses, settle again, never send again, and claim nothing meanwhile;
4. give back uncounted what could not be tried.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from uuid import UUID

import structlog

from relay.claims.answers import batch_of, not_sent, tidy, where, whole, why
from relay.claims.claim import Claim, LostClaim
from relay.claims.destinations import Destinations
from relay.claims.rows import RowClaims
from relay.claims.shards import ShardClaims
from relay.config.settings import SinkSettings
from relay.database.steps import Steps
from relay.errors import DatabaseUnavailable, RelayError
from relay.process.circuit import Circuit, Sender
from relay.process.leases import Lease, Leases
from relay.process.stopping import Stopping
from relay.telemetry.metrics import Metrics
from relay.telemetry.outcomes import tell
from sinks.base import ClaimRevoked, Outcome, Retry, Sink, SinkUnavailable

log = structlog.get_logger("relay")


class Engine:
    """The loop of one sink's one worker.

    Args:
        settings: the sink's settings.
        claims: its own way to claim and settle; no other thread uses it.
        destinations: what is known of the sink's destinations, shared by its workers in this process.
        sink: its own sender.
        renew: gives the sender to go on with before it is opened: another where its secrets have changed.
        circuit: shared by the sink's workers in this process.
        leases: shared by all threads; the heartbeat keeps what is in it.
        stopping: says when to stop.
    """

    def __init__(
        self,
        settings: SinkSettings,
        *,
        claims: RowClaims | ShardClaims,
        sink: Sink,
        renew: Callable[[Sink], Sink] | None = None,
        circuit: Circuit,
        destinations: Destinations,
        leases: Leases,
        stopping: Stopping,
        metrics: Metrics,
    ) -> None:
        self.name = settings.name
        self._settings = settings
        self._claims = claims
        self._sender = Sender(settings, sink, circuit, stopping, renew)
        self._destinations = destinations
        destinations.of(sink)
        self._leases = leases
        self._stopping = stopping
        self._metrics = metrics
        self._circuit = circuit
        self._steps = Steps(settings.name, stopping.wait_at_once, self._unsettled)
        self._settled: list[UUID] = []
        self._unheard: UUID | None = None
        self._replaced = 0
        self.claimed = 0
        """How many claims were not empty since the start."""

    @property
    def trouble(self) -> str | None:
        """What the database refused last; None while it works."""
        return self._steps.trouble

    def run_once(self) -> float | None:
        """One round. Returns seconds until another makes sense; None where there was nothing to do."""
        limit = self._sender.allowance()
        if limit == 0:
            return self._sender.wait()
        asked_at = time.monotonic()
        try:
            claim = self._steps.take(lambda: self._claim(limit), "claim")
        except RelayError:
            return self._steps.wait()
        if claim is None:
            self._sender.nothing_to_send()
            return None
        self.claimed += 1
        with self._leases.holding(claim, self._settings.lease, asked_at) as lease:
            self._deliver(claim, lease)
        self._count_replaced_clients()
        return 0.0

    def _count_replaced_clients(self) -> None:
        now = self._sender.sink.clients_replaced
        # A sink that was made anew begins at 0.
        self._metrics.clients_replaced(self.name, now - self._replaced if now >= self._replaced else now)
        self._replaced = now

    def close(self) -> None:
        self._sender.close()
        self._claims.close()

    def _claim(self, limit: int) -> Claim | None:
        if self._unheard is not None:
            # The answer to a claim was lost: it may stand, and nobody tried to send what it holds.
            self._claims.abandon(self._unheard)
            self._unheard = None
        token = self._sender.sink.new_token()
        try:
            return self._claims.claim(limit, token)
        except DatabaseUnavailable:
            self._unheard = token
            raise

    def _deliver(self, claim: Claim, lease: Lease) -> None:
        if claim.unread is not None and not self._read(claim):
            return
        decided = not_sent(claim, self._destinations.hold_back(claim), fenced=self._sender.sink.fenced)
        batch = batch_of(claim, decided, settled=self._settled, lost=lease.lost, stopping=self._stopping.is_set)
        started = time.monotonic()
        try:
            outcomes, certain = self._sender.send(batch, lease) if batch.messages else ((), True)
        except ClaimRevoked:
            self._lost(claim, "the broker knows a later claim")
            return
        except SinkUnavailable as error:
            self._sender.close()
            self._sender.broken(error.reason)
            self._release(claim, unknown=error.unknown, reason=error.reason)
            return
        except BaseException as error:  # noqa: BLE001 - a sink may raise anything, and no message may stop the relay
            self._sender.close()
            self._crashed(claim, error)
            return
        self._metrics.sent(self.name, time.monotonic() - started)
        if lease.lost() and len(outcomes) < len(batch.messages):
            self._lost(claim, "the lease ran out during the send")
            return
        if batch.messages:
            self._settled.clear()
        self._settle(claim, whole(claim, outcomes, decided), certain, asked=bool(batch.messages))

    def _read(self, claim: Claim) -> bool:
        """Read the data of a message that is claimed without it; False where that failed, and the claim is over."""
        largest = min(self._settings.message_bytes, self._sender.sink.largest or self._settings.message_bytes)
        failed = self._steps.read(claim.messages[0].id, lambda: self._claims.read(claim, largest))
        if failed is None:
            return True
        if failed.guilty and claim.messages[0].kind:
            self._settle(claim, [Retry(tidy(failed.reason))], True, asked=False)
        else:
            self._release(claim, unknown=False, reason=failed.reason)
        self._stopping.wait(failed.wait)
        return False

    def _settle(self, claim: Claim, outcomes: Sequence[Outcome], certain: bool, *, asked: bool) -> None:
        verdict = self._claims.judge(claim, outcomes)
        if verdict.trouble is not None:
            self._sender.broken(verdict.trouble, len(verdict.delivered))
        elif asked:
            self._sender.worked()
        if not self._insist(lambda: self._claims.settle(claim, verdict)):
            self._lost(claim, "it was gone at the settle")
            return
        if certain and asked:
            # Where an answer was unknown, a copy of the request may still be under way: its mark must stay.
            self._settled.append(claim.token)
        self._metrics.settled(self.name, verdict)
        tell(claim, verdict)

    def _release(self, claim: Claim, *, unknown: bool, reason: str) -> None:
        unknown = unknown and self._sender.sink.fenced
        if not self._insist(lambda: self._claims.release(claim, unknown=unknown, reason=tidy(reason))):
            self._lost(claim, "it was gone at the release")

    def _crashed(self, claim: Claim, error: BaseException) -> None:
        """A sink raised what it should not. Who is guilty is known only once a message is claimed alone."""
        reason, place = why(error), where(error)
        log.error("sink failed", sink=self.name, count=len(claim.messages), error=type(error).__name__, where=place)
        if len(claim.messages) == 1:
            verdict = self._claims.judge(claim, [Retry(reason)])
            verdict.unknown = claim.token
            self._insist(lambda: self._claims.settle(claim, verdict))
        else:
            self._insist(lambda: self._claims.release(claim, unknown=True, reason=reason, died=True))

    def _insist(self, write: Callable[[], None]) -> bool:
        return self._steps.insist(write, lost=LostClaim)

    def _unsettled(self, reason: str | None) -> None:
        if self._circuit.settles(self, reason):
            self._metrics.unsettled(self.name, len(self._circuit.unsettled))

    def _lost(self, claim: Claim, how: str) -> None:
        self._metrics.lost(self.name)
        log.warning("claim lost", sink=self.name, token=str(claim.token), count=len(claim.messages), how=how)
