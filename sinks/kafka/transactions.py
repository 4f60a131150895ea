"""Sending in transactions: once, for consumers that read committed records.

Each sender has an identity, which is part of its claims' tokens (`kafka_tokens`) and names its transactional id. With
the messages of a claim it commits a mark that tells of them (`kafka_claims`):

1. own token marked: what was sent is delivered; marked closed: refuse;
2. for each prior token of its messages: unless all were sent, take over that identity, which makes Kafka end its open
   transaction and refuse its sender from then on; look again, and mark it closed. What was sent is delivered;
3. send the rest, and the mark, in one transaction.

A commit without an answer leaves the identity in doubt, so it is taken over anew before anything else is sent under
it, and then the marks tell.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from confluent_kafka import KafkaError, KafkaException

from sinks.base import ARRIVED, DELIVERED, Batch, ClaimRevoked, Reject, SinkUnavailable
from sinks.kafka.claims import Claims
from sinks.kafka.client import KafkaClient, Patience, Refused, Report, log
from sinks.kafka.errors import Meaning, describe, error_of, meaning
from sinks.kafka.judge import Judge
from sinks.kafka.marks import NOT_SENT, Mark
from sinks.kafka.session import CommitInDoubt, Session
from sinks.kafka.tokens import Sender, identity_of
from sinks.kafka.work import Work

FRUITLESS_A_SEND: Final = 3
"""So many transactions in a row may come to nothing before one `send` leaves the rest to the next one."""
REMEMBERED: Final = 10_000


class TransactionalSender:
    """One identity, and what it has learnt of others.

    Args:
        sink: the sink's name, part of every transactional id.
        topic: where the marks are kept.
    """

    def __init__(self, judge: Judge, sink: str, topic: str) -> None:
        self.fatal_producers = 0
        """How many producers ended with a fatal error and were replaced."""
        self._judge = judge
        self._sink = sink
        self._self = Sender()
        self._claims = Claims(judge.options, topic)
        self._session: Session | None = None
        self._session_kind: tuple[object, ...] = ()
        self._known: dict[UUID, Mark] = {}
        """Marks of this session's claims, and of others where they are final."""

    def new_token(self) -> UUID:
        token = self._self.new_token()
        if self._session is not None:
            # Nobody can have used it, and who revokes it ends this session: there is no need to look.
            self._remember(token, NOT_SENT)
        return token

    def open(self, patience: Patience) -> None:
        """
        Raises:
            SinkUnavailable: no broker answers, or Kafka does not hand the identity over.
        """
        try:
            session = self._take(self._self.identity, alone=False, patience=patience)
        except KafkaException as error:
            raise SinkUnavailable(describe(error_of(error)), unknown=False) from error
        self._claims.prepare(session.client, patience)

    def close(self) -> None:
        """End it now. What is open is aborted when the identity is taken over, or after `transaction.timeout.ms`."""
        self._end()

    def send(self, work: Work, batch: Batch, patience: Patience) -> None:
        """Give every message its outcome, unless the claim was lost.

        Raises:
            SinkUnavailable: nothing was committed, or it is not known whether it was.
            ClaimRevoked: another sender has found nothing sent under this token, and goes on without us.
        """
        try:
            reason = self._send(work, batch, patience)
        except KafkaException as error:
            reason = describe(error_of(error))
            self._end(patience)
        except SinkUnavailable:
            self._end(patience)
            raise
        if not batch.lost():
            self._judge.conclude(work, reason, unknown=False)

    def _send(self, work: Work, batch: Batch, patience: Patience) -> str:
        """Why some messages are not decided, where some are not."""
        session = self._begin(work, batch, patience)
        self._judge.hold_unwell(work, session.client, patience)
        self._recall_earlier(work, session.client, patience)
        for position in work.undecided() if batch.withdrawn else ():
            if work.messages[position].id in batch.withdrawn:
                work.outcomes[position] = Reject("given up")
        reason, fruitless = "no answer in time", 0
        doubt: CommitInDoubt | None = None
        while (wave := work.wave()).positions and not patience.over and fruitless < FRUITLESS_A_SEND:
            before = work.progress()
            try:
                session = self._begin(work, batch, patience, alone=wave.alone)
                doubt = None
                self._transact(session, work, batch, patience)
            except CommitInDoubt as error:
                doubt = error
                self._end()
            except KafkaException as error:
                reason = describe(error_of(error))
                self._end(patience)
                if meaning(error_of(error)) is not Meaning.AGAIN:
                    break
            except SinkUnavailable as error:
                raise doubt or error from error
            fruitless = fruitless + 1 if work.progress() == before else 0
        if doubt is not None:
            raise doubt
        return reason

    def _begin(self, work: Work, batch: Batch, patience: Patience, *, alone: bool = False) -> Session:
        """The session that this batch's token names; what was sent under the token already is delivered."""
        session = self._take(identity_of(batch.token), alone=alone, patience=patience)
        mark = self._known.get(batch.token)
        if mark is None:
            self._claims.prepare(session.client, patience)
            mark = self._claims.find([batch.token], patience).get(batch.token, NOT_SENT)
            self._remember(batch.token, mark)
        if mark.closed:
            raise ClaimRevoked(f"claim {batch.token} is revoked: a later claim holds its messages")
        for position in work.undecided() if mark != NOT_SENT else ():
            if mark.sent(work.messages[position].id):
                work.outcomes[position] = DELIVERED
        return session

    def _recall_earlier(self, work: Work, client: KafkaClient, patience: Patience) -> None:
        """Learn what became of earlier claims of these messages; from now on nothing more will."""
        open_ = [work.messages[position] for position in work.undecided()]
        tokens = {token for message in open_ for token in message.prior_tokens}
        unknown = {token for token in tokens if token not in self._known}
        if unknown:
            self._claims.prepare(client, patience)
            # Not waiting: what is open may be one of these, and is ended only below.
            found = self._claims.find(unknown, patience, wait=False)
            for token in unknown:
                self._remember(token, self._close(token, found.get(token, NOT_SENT), patience))
        for position in work.undecided() if tokens else ():
            message = work.messages[position]
            if any(self._known.get(token, NOT_SENT).sent(message.id) for token in message.prior_tokens):
                work.outcomes[position] = ARRIVED

    def _close(self, token: UUID, mark: Mark, patience: Patience) -> Mark:
        """See to it that nothing more is sent under a token.

        Args:
            mark: what was found of it.
        """
        if mark.final:
            return mark
        if self._session_kind[0] == identity_of(token):
            # Our own: opening the session has ended what was open, and nobody sends under it any more.
            return self._claims.find([token], patience).get(token, NOT_SENT)
        other = Session(self._name(identity_of(token)), self._judge.options, patience)
        try:
            mark = self._claims.find([token], patience).get(token, NOT_SENT)
            if mark.final:
                return mark
            other.begin()
            (report,) = other.client.deliver([self._claims.record(token, mark.close())], patience, together=True)
            if report is not None:
                raise SinkUnavailable(f"claim {token} could not be closed in time", unknown=False)
            other.commit(patience)
            return mark.close()
        finally:
            other.end()

    def _transact(self, session: Session, work: Work, batch: Batch, patience: Patience) -> None:
        """Send and commit a wave as a whole. Else it is aborted, and those to blame have their outcomes."""
        wave = work.wave()
        mark = _mark_of(work, wave.positions)
        records = [work.record(position) for position in wave.positions]
        session.begin()
        *reports, marked = session.client.deliver(
            [*records, self._claims.record(batch.token, mark)], patience, together=True
        )
        taken = self._judge.judge(work, wave, reports)
        self._check_marked(marked)
        if len(taken) < len(wave.positions) or marked is not None or patience.over:
            if session.client.fatal is not None:
                self.fatal_producers += 1
                log.warning("producer is replaced after a fatal error: %s", describe(session.client.fatal))
                self._judge.give_up(work, session.client.fatal)
            # After an abort librdkafka finds gaps in its own numbers: begin anew.
            self._end(patience)
            return
        session.commit(patience)
        self._remember(batch.token, mark)
        for position in taken:
            work.outcomes[position] = DELIVERED

    def _check_marked(self, report: Report) -> None:
        """
        Raises:
            SinkUnavailable: marks cannot be written, so nothing can be sent.
        """
        error = report.error if isinstance(report, Refused) else report
        if isinstance(error, KafkaError) and meaning(error) in {Meaning.TOPIC, Meaning.CLUSTER, Meaning.SUSPECT}:
            raise SinkUnavailable(f"topic {self._claims.topic}: {describe(error)}", unknown=False)

    def _take(self, identity: bytes, *, alone: bool, patience: Patience) -> Session:
        kind = (identity, alone, self._judge.options["batch.size"])
        if self._session is None or self._session_kind != kind:
            self._end(patience)
            options = {**self._judge.options, "batch.num.messages": 1} if alone else self._judge.options
            self._session = Session(self._name(identity), options, patience)
            self._session_kind = kind
        return self._session

    def _end(self, patience: Patience | None = None) -> None:
        if self._session is not None:
            self._session.end(patience)
        self._session = None
        # Until it is taken over again, others may close what is not finished.
        self._known = {token: mark for token, mark in self._known.items() if mark.final}

    def _remember(self, token: UUID, mark: Mark) -> None:
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known[token] = mark

    def _name(self, identity: bytes) -> str:
        return f"outbox-relay.{self._sink}.{identity.hex()}"


def _mark_of(work: Work, sent_now: list[int]) -> Mark:
    """The mark of this batch's token once these are committed too."""
    sent = set(sent_now)
    sent.update(position for position, outcome in enumerate(work.outcomes) if outcome == DELIVERED)
    unsent = [message.id for position, message in enumerate(work.messages) if position not in sent]
    return Mark.of((work.messages[position].id for position in sent), unsent)
