"""What became of claims: a sender's own, and earlier ones of the same messages."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final
from uuid import UUID

from confluent_kafka import KafkaException

from sinks.base import ARRIVED, Hold, SinkUnavailable
from sinks.kafka.claims import Claims
from sinks.kafka.client import Patience
from sinks.kafka.errors import describe, error_of
from sinks.kafka.log import log
from sinks.kafka.marks import NOT_SENT, Mark, identity_of
from sinks.kafka.session import Session
from sinks.kafka.topics import Admin
from sinks.kafka.work import Work

REMEMBERED: Final = 10_000
SHARE: Final = 0.5
"""Of a send's time, for finding out about earlier claims: the rest is for messages that have none."""


class Recall:
    """
    Args:
        take_over: makes us the sender with an identity, for as long as the session lives.
    """

    def __init__(self, admin: Admin, claims: Claims, take_over: Callable[[bytes, Patience], Session]) -> None:
        self._admin = admin
        self._claims = claims
        self._take_over = take_over
        self._known: dict[UUID, Mark] = {}
        """Marks of this session's claims, and of others where they are final."""

    def remember(self, token: UUID, mark: Mark) -> None:
        if len(self._known) >= REMEMBERED:
            del self._known[next(iter(self._known))]
        self._known[token] = mark

    def session_ended(self) -> None:
        """Until it is taken over again, others may close what is not finished."""
        self._known = {token: mark for token, mark in self._known.items() if mark.final}

    def knows(self, token: UUID) -> bool:
        return token in self._known

    def own(self, token: UUID, patience: Patience) -> Mark:
        """What became of a claim whose identity is ours.

        Raises:
            SinkUnavailable: it cannot be found out now.
        """
        if token not in self._known:
            self.remember(token, self._claims.find([token], patience).get(token, NOT_SENT))
        return self._known[token]

    def decide_earlier(self, work: Work, own_identity: bytes, now_ms: int, patience: Patience) -> None:
        """Learn what became of earlier claims of these messages; from now on nothing more will. What has arrived is
        delivered; where that cannot be learnt, the messages that it is about wait, and no others.

        Args:
            own_identity: the one whose session is open.
            now_ms: by the database's clock.

        Raises:
            SinkUnavailable: no broker answers.
        """
        undecided = work.undecided()
        tokens = {token for position in undecided for token in work.messages[position].prior_tokens}
        if not tokens:
            return
        marks = {token: self._known[token] for token in tokens if token in self._known}
        trouble = self._learn(marks, tokens - marks.keys(), own_identity, now_ms, patience.part(SHARE))
        if trouble is not None:
            self._admin.ask(patience)
        for position in undecided:
            message = work.messages[position]
            if any(marks[token].sent(message.id) for token in message.prior_tokens if token in marks):
                work.outcomes[position] = ARRIVED
            elif any(token not in marks for token in message.prior_tokens):
                reason = f"it is not known whether an earlier attempt arrived: {trouble}"
                work.outcomes[position] = Hold(reason, self._claims.topic)

    def _learn(
        self,
        marks: dict[UUID, Mark],
        tokens: Collection[UUID],
        own_identity: bytes,
        now_ms: int,
        patience: Patience,
    ) -> str | None:
        """Add the marks of these tokens; return why some are missing, or None where none is."""
        if not tokens:
            return None
        try:
            self._claims.prepare(patience)
            # Not waiting: what is open may be one of these, and is ended only below.
            found = self._claims.find(tokens, patience, wait=False)
            for token in tokens:
                mark = found.get(token, NOT_SENT)
                if not mark.final and identity_of(token) == own_identity:
                    # Opening the session has ended what was open, and nobody else sends under it any more.
                    mark = self._claims.find([token], patience).get(token, NOT_SENT)
                elif not mark.final:
                    mark = self._close(token, now_ms, patience)
                marks[token] = mark
                self.remember(token, mark)
        except SinkUnavailable as error:
            return error.reason
        except KafkaException as error:
            return describe(error_of(error))
        return None

    def _close(self, token: UUID, now_ms: int, patience: Patience) -> Mark:
        """See to it that nothing more is sent under a token."""
        session = self._take_over(identity_of(token), patience)
        try:
            if self._claims.forgotten(token):
                template = "topic %s does not know claim %s any more: what was sent under it may arrive twice"
                log.warning(template, self._claims.topic, token)
                return NOT_SENT.close()
            mark = self._claims.find([token], patience).get(token, NOT_SENT)
            if mark.final:
                return mark
            session.begin()
            record = self._claims.record(token, mark.close(), now_ms)
            (report,) = session.client.deliver([record], patience, together=True)
            if report is not None:
                raise SinkUnavailable(f"claim {token} could not be closed in time", unknown=False)
            session.commit(patience)
            return mark.close()
        finally:
            session.end()
