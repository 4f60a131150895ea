"""Sending in transactions: once, for consumers that read committed records.

Each sender has an identity, which is part of its claims' tokens (`marks`) and names its transactional id. With
the messages of a claim it commits a mark that tells of them (`claims`):

1. own token marked: what was sent is delivered; marked closed: refuse;
2. for each prior token of its messages: unless all were sent, take over that identity, which makes Kafka end its open
   transaction and refuse its sender from then on; look again, and mark it closed. What was sent is delivered;
3. send the rest, and the mark, in one transaction.

A commit without an answer leaves the identity in doubt, so it is taken over anew before anything else is sent under
it, and then the marks tell.
"""

from __future__ import annotations

import time
from typing import Final
from uuid import UUID

from confluent_kafka import KafkaError, KafkaException

from sinks.base import DELIVERED, Batch, ClaimRevoked, Reject, SinkUnavailable
from sinks.kafka.claims import Claims
from sinks.kafka.client import Patience, Refused, Report
from sinks.kafka.errors import Meaning, describe, error_of, meaning
from sinks.kafka.judge import Judge
from sinks.kafka.log import log
from sinks.kafka.marks import NOT_SENT, Mark, Sender, identity_of
from sinks.kafka.recall import Recall
from sinks.kafka.session import CommitInDoubt, Session, take_over
from sinks.kafka.work import Work

FRUITLESS_A_SEND: Final = 3
"""So many transactions in a row may come to nothing before one `send` leaves the rest to the next one."""
PLACE_S: Final = 60.0
"""How often a sender looks where its marks are by now: whoever asks for one reads from there on."""


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
        self._claims = Claims(judge.admin, judge.options, topic)
        self._recall = Recall(
            judge.admin, self._claims, lambda identity, patience: self._take_over(identity, False, patience)
        )
        self._look_at = 0.0
        self._session: Session | None = None
        self._session_kind: tuple[object, ...] = ()

    def new_token(self) -> UUID:
        token = self._self.new_token()
        if self._session is not None:
            # Nobody can have used it, and who revokes it ends this session: there is no need to look.
            self._recall.remember(token, NOT_SENT)
        return token

    def open(self, patience: Patience) -> None:
        """
        Raises:
            SinkUnavailable: no broker answers, or Kafka does not hand the identity over.
        """
        try:
            self._take(self._self.identity, alone=False, patience=patience)
        except KafkaException as error:
            raise SinkUnavailable(describe(error_of(error)), unknown=False) from error
        self._find_place(patience)

    def close(self) -> None:
        """End it now; what is open is aborted."""
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
            self._end()
        except SinkUnavailable:
            self._end()
            raise
        if not batch.lost():
            self._judge.conclude(work, reason, unknown=False)

    def _send(self, work: Work, batch: Batch, patience: Patience) -> str:
        """Why some messages are not decided, where some are not."""
        session = self._begin(work, batch, patience)
        self._judge.hold_unwell(work, session.client, patience)
        identity = identity_of(batch.token)
        self._recall.decide_earlier(work, identity, _now_ms(batch), patience)
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
                self._end()
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
        if not self._recall.knows(batch.token) or time.monotonic() >= self._look_at:
            self._find_place(patience)
        if self._claims.forgotten(batch.token):
            # Not "revoked": perhaps nobody else holds these messages, and a lost claim would count as an attempt.
            reason = f"topic {self._claims.topic} was replaced: it cannot tell what becomes of claim {batch.token}"
            raise SinkUnavailable(reason, unknown=not self._recall.knows(batch.token))
        mark = self._recall.own(batch.token, patience)
        if mark.closed:
            raise ClaimRevoked(f"claim {batch.token} is revoked: a later claim holds its messages")
        for position in work.undecided() if mark != NOT_SENT else ():
            if mark.sent(work.messages[position].id):
                work.outcomes[position] = DELIVERED
        return session

    def _find_place(self, patience: Patience) -> None:
        """Where the marks of coming claims will be."""
        self._claims.prepare(patience)
        self._self.move(self._claims.place(self._self.place, patience))
        self._look_at = time.monotonic() + PLACE_S

    def _transact(self, session: Session, work: Work, batch: Batch, patience: Patience) -> None:
        """Send and commit a wave as a whole. Else it is aborted, and those to blame have their outcomes."""
        wave = work.wave()
        mark = _mark_of(work, wave.positions)
        records = [work.record(position) for position in wave.positions]
        session.begin()
        records.append(self._claims.record(batch.token, mark, _now_ms(batch)))
        *reports, marked = session.client.deliver(records, patience, together=True)
        taken = self._judge.judge(work, wave, reports)
        self._check_marked(marked)
        if len(taken) < len(wave.positions) or marked is not None or patience.over:
            if session.client.fatal is not None:
                self.fatal_producers += 1
                log.warning("producer is replaced after a fatal error: %s", describe(session.client.fatal))
                self._judge.give_up(work, session.client.fatal)
            # After an abort librdkafka finds gaps in its own numbers: begin anew.
            self._end()
            return
        session.commit(patience)
        self._recall.remember(batch.token, mark)
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
            self._end()
            self._session = self._take_over(identity, alone, patience)
            self._session_kind = kind
        return self._session

    def _take_over(self, identity: bytes, alone: bool, patience: Patience) -> Session:
        return take_over(self._sink, identity, self._judge.options, patience, alone=alone)

    def _end(self) -> None:
        if self._session is not None:
            self._session.end()
        self._session = None
        self._recall.session_ended()


def _mark_of(work: Work, sent_now: list[int]) -> Mark:
    """The mark of this batch's token once these are committed too."""
    sent = set(sent_now)
    sent.update(position for position, outcome in enumerate(work.outcomes) if outcome == DELIVERED)
    unsent = [message.id for position, message in enumerate(work.messages) if position not in sent]
    return Mark.of((work.messages[position].id for position in sent), unsent)


def _now_ms(batch: Batch) -> int:
    """By the database's clock; not much time has passed since the claim."""
    return batch.claimed_us // 1000
