"""Sending in transactions: once, for consumers that read committed records.

A sender has an *identity*, random and kept while it lives: its transactional id, and the name of the consumer group
that holds its marks (`kafka_marks`). The first half of a claim's token is the identity that sends it, so that whoever
claims the same messages later knows whom to ask:

1. own token marked sent: answer as the first time; marked revoked: refuse;
2. for each prior token of its messages: marked sent → delivered. No mark → take over that identity, which makes Kafka
   end its open transaction and refuse its sender from then on, look again, and if still none, mark it revoked;
3. send the rest, and the mark, in one transaction.

A commit without an answer leaves the identity in doubt: it is opened anew before anything else is sent under it, and
then the marks tell. Kafka forgets marks `offsets.retention.minutes` (7 days) after the last one of an identity.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID, uuid4

from confluent_kafka import KafkaException

from sinks.base import DELIVERED, Batch, ClaimRevoked, SinkUnavailable
from sinks.kafka_client import Patience, log
from sinks.kafka_errors import Meaning, describe, error_of, meaning
from sinks.kafka_judge import Judge
from sinks.kafka_marks import LONGEST, REVOKED, Mark
from sinks.kafka_session import MarkStore, Session
from sinks.kafka_work import Wave, Work

FRUITLESS_A_SEND: Final = 3
"""So many transactions in a row may come to nothing before one `send` leaves the rest to the next one."""
REMEMBERED: Final = 10_000
NOT_SENT: Final = Mark()


class TransactionalSender:
    """One identity, and what it has learnt of others.

    Args:
        sink: the sink's name, part of every transactional id.
    """

    def __init__(self, judge: Judge, sink: str) -> None:
        self.fatal_producers = 0
        """How many producers ended with a fatal error and were replaced."""
        self._judge = judge
        self._sink = sink
        self._identity = uuid4().bytes[:8]
        self._session: Session | None = None
        self._session_kind: tuple[object, ...] = ()
        self._store: MarkStore | None = None
        self._of_others: dict[UUID, Mark] = {}

    def new_token(self) -> UUID:
        return UUID(bytes=self._identity + uuid4().bytes[8:])

    def open(self, patience: Patience) -> None:
        """
        Raises:
            SinkUnavailable: no broker answers, or Kafka does not hand the identity over.
        """
        try:
            self._take(UUID(bytes=self._identity * 2), alone=False, patience=patience)
        except KafkaException as error:
            raise SinkUnavailable(describe(error_of(error)), unknown=False) from error

    def close(self) -> None:
        """End it now. What is open is aborted when the identity is taken over, or after `transaction.timeout.ms`."""
        self._end()
        self._store = None

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
        self._recall_earlier(work, batch, session, patience)
        reason, fruitless = "no answer in time", 0
        while (wave := work.wave()).positions and not patience.over and fruitless < FRUITLESS_A_SEND:
            try:
                session = self._begin(work, batch, patience, alone=wave.alone)
                before = len(work.undecided())
                self._transact(session, _with_room(wave, work), work, batch, patience)
                fruitless = fruitless + 1 if len(work.undecided()) == before else 0
            except KafkaException as error:
                reason = describe(error_of(error))
                self._end(patience)
                if meaning(error_of(error)) is not Meaning.AGAIN:
                    break
                fruitless += 1
        return reason

    def _begin(self, work: Work, batch: Batch, patience: Patience, *, alone: bool = False) -> Session:
        """The session that this batch's token names; what it has sent of the batch already is delivered."""
        session = self._take(batch.token, alone=alone, patience=patience)
        for token in batch.settled:
            if token.bytes[:8] == batch.token.bytes[:8]:
                session.marks.pop(_half(token), None)
        mark = session.marks.get(_half(batch.token), NOT_SENT)
        if mark.revoked:
            raise ClaimRevoked(f"claim {batch.token} is revoked: a later claim holds its messages")
        for position in work.undecided() if mark is not NOT_SENT else ():
            if mark.sent(work.messages[position].id):
                work.outcomes[position] = DELIVERED
        return session

    def _recall_earlier(self, work: Work, batch: Batch, session: Session, patience: Patience) -> None:
        for position in work.undecided():
            message = work.messages[position]
            for token in message.prior_tokens:
                if self._mark(token, session, work.record(position).topic, patience).sent(message.id):
                    work.outcomes[position] = DELIVERED
                    break

    def _mark(self, token: UUID, session: Session, topic: str, patience: Patience) -> Mark:
        """What became of an earlier claim; from now on nothing more will.

        Args:
            topic: one that exists.
        """
        if self._name(token) == session.name:
            return session.marks.get(_half(token), NOT_SENT)
        mark = self._of_others.get(token)
        if mark is None:
            marks = self._marks().read(self._name(token), patience).marks
            mark = marks.get(_half(token)) or self._revoke(token, topic, patience)
            if len(self._of_others) >= REMEMBERED:
                self._of_others.clear()
            self._of_others[token] = mark
        return mark

    def _revoke(self, token: UUID, topic: str, patience: Patience) -> Mark:
        other = Session(self._name(token), self._judge.options, self._marks(), patience)
        try:
            mark = other.marks.get(_half(token))
            if mark is None:
                mark = REVOKED
                other.begin()
                other.commit(_half(token), mark, topic, patience)
            return mark
        finally:
            other.end()

    def _transact(self, session: Session, wave: Wave, work: Work, batch: Batch, patience: Patience) -> None:
        """Send and commit a wave as a whole. Else it is aborted, and those to blame have their outcomes."""
        session.begin()
        records = [work.record(position) for position in wave.positions]
        taken = self._judge.judge(work, wave, session.client.deliver(records, patience, together=True))
        if len(taken) < len(wave.positions) or patience.over:
            if session.client.fatal is not None:
                self.fatal_producers += 1
                log.warning("producer is replaced after a fatal error: %s", describe(session.client.fatal))
                self._judge.give_up(work, session.client.fatal)
            # After an abort librdkafka finds gaps in its own numbers: begin anew.
            self._end(patience)
            return
        session.commit(_half(batch.token), _mark_of(work, taken), records[0].topic, patience)
        for position in taken:
            work.outcomes[position] = DELIVERED

    def _take(self, token: UUID, *, alone: bool, patience: Patience) -> Session:
        kind = (self._name(token), alone, self._judge.options["batch.size"])
        if self._session is None or self._session_kind != kind:
            self._end(patience)
            options = {**self._judge.options, "batch.num.messages": 1} if alone else self._judge.options
            self._session = Session(self._name(token), options, self._marks(), patience)
            self._session_kind = kind
        return self._session

    def _end(self, patience: Patience | None = None) -> None:
        if self._session is not None:
            self._session.end(patience)
        self._session = None

    def _marks(self) -> MarkStore:
        if self._store is None:
            self._store = MarkStore(self._judge.options)
        return self._store

    def _name(self, token: UUID) -> str:
        return f"outbox-relay.{self._sink}.{token.bytes[:8].hex()}"


def _half(token: UUID) -> str:
    """The part of a token that tells it from others of its identity."""
    return token.bytes[8:].hex()


def _mark_of(work: Work, taken: list[int]) -> Mark:
    """The mark of this batch's token once `taken` is committed too."""
    sent = set(taken)
    sent.update(position for position, outcome in enumerate(work.outcomes) if outcome is DELIVERED)
    unsent = [message.id for position, message in enumerate(work.messages) if position not in sent]
    return Mark.of((work.messages[position].id for position in sent), unsent)


def _with_room(wave: Wave, work: Work) -> Wave:
    """As much of the wave as its mark has room for."""
    positions = wave.positions
    while len(positions) > 1 and len(_mark_of(work, positions).to_text()) > LONGEST - 50:
        positions = positions[: len(positions) // 2]
    return Wave(positions, wave.alone)
