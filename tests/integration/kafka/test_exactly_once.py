"""Transactions whose commits carry the claim's token: once, whatever dies on the way."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import pytest
from confluent_kafka.admin import AclOperation, ResourcePatternType, ResourceType

from sinks.base import DELIVERED, Batch, ClaimRevoked, Message, SinkUnavailable
from sinks.kafka.session import Session
from sinks.kafka.sink import KafkaSink
from sinks.kafka.work import Wave, Work
from sinks.testing import batch, message
from tests.kafka_sinks import ids, make, opened
from tests.servers.kafka import KafkaCluster, new_name
from tests.servers.proxy import Direction

KEEPS_SENDING = """
import sys
from uuid import UUID
from sinks.kafka.work import Wave, Work
from sinks.testing import batch, message
from tests.kafka_sinks import make

bootstrap, topic = sys.argv[1:]
sink = make({"bootstrap.servers": bootstrap}, topic, exactly_once=True)
sink.open()
for number in range(0, 10**6, 10):
    token = sink.new_token()
    messages = [message(number + at, message_id=UUID(int=number + at)) for at in range(10)]
    print(number, token, flush=True)
    sink.send(batch(messages, token=token))
"""


def again(claim: Batch) -> Batch:
    """The same messages, claimed by somebody who does not know what became of this claim."""
    return batch([one._replace(prior_tokens=(*one.prior_tokens, claim.token)) for one in claim.messages])


def claim(sink: KafkaSink, numbers: range) -> Batch:
    return batch([message(number) for number in numbers], token=sink.new_token())


def test_killed_sender_leaves_no_second_copy_and_no_gap(kafka: KafkaCluster) -> None:
    for _ in range(4):
        topic = kafka.new_topic(partitions=3)
        number, token = killed_while_sending(kafka, topic)
        last = batch([message(number + at, message_id=UUID(int=number + at)) for at in range(10)], token=token)
        with opened(kafka.client, topic, exactly_once=True, timeout=20) as heir:
            assert heir.send(again(last)) == [DELIVERED] * 10
        assert sorted(UUID(one).int for one in ids(kafka.read(topic))) == list(range(number + 10))


def killed_while_sending(kafka: KafkaCluster, topic: str) -> tuple[int, UUID]:
    """Run a sender and SIGKILL it somewhere in the middle; return what it sent last, and its token."""
    command = [sys.executable, "-c", KEEPS_SENDING, kafka.bootstrap, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]) as sender:
        assert sender.stdout
        lines = iter(sender.stdout)
        last = next(lines)
        for _ in range(random.randrange(1, 20)):
            last = next(lines)
        time.sleep(random.random() * 0.02)
        sender.kill()
        last = [last, *lines][-1]
    number, token = last.split()
    return int(number), UUID(token)


def test_connection_cut_anywhere_leaves_no_second_copy_and_no_gap(kafka: KafkaCluster) -> None:
    topic = kafka.new_topic(partitions=3)
    proxy = kafka.brokers[0].proxy
    with opened(kafka.proxied_client, topic, exactly_once=True) as sink:
        sent: list[Message] = []
        for number in range(0, 200, 10):
            one = claim(sink, range(number, number + 10))
            proxy.cut_after(random.randrange(1, 3000), random.choice(list(Direction)))
            sent += one.messages
            assert until_known(sink, one) == [DELIVERED] * 10
    assert sorted(ids(kafka.read(topic))) == sorted(str(one.message_id) for one in sent)


def until_known(sink: KafkaSink, claim: Batch) -> list[object]:
    """Ask again under the same token, as the relay does."""
    deadline = time.monotonic() + 50
    while True:
        try:
            return list(sink.send(claim))
        except SinkUnavailable:
            sink.close()
            assert time.monotonic() < deadline


class Stalled:
    """Holds a sender up right before its commit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.there, self.go = threading.Event(), threading.Event()
        real = Session.commit

        def commit(session: Session, *arguments: object) -> None:
            if threading.current_thread().name.startswith("zombie"):
                self.there.set()
                assert self.go.wait(30)
            real(session, *arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(Session, "commit", commit)


def test_sender_that_stalls_before_its_commit_is_shut_out(kafka: KafkaCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = kafka.new_topic(partitions=3)
    stalled = Stalled(monkeypatch)
    with (
        opened(kafka.client, topic, exactly_once=True, timeout=20) as heir,
        opened(kafka.client, topic, exactly_once=True, timeout=20) as zombie,
        ThreadPoolExecutor(1, thread_name_prefix="zombie") as pool,
    ):
        first = claim(zombie, range(100))
        sending = pool.submit(until_known, zombie, first)
        assert stalled.there.wait(10)
        assert heir.send(again(first)) == [DELIVERED] * 100
        stalled.go.set()
        with pytest.raises(ClaimRevoked):
            sending.result(timeout=60)
        # It is of use again for other claims.
        second = claim(zombie, range(100, 110))
        assert pool.submit(zombie.send, second).result(timeout=30) == [DELIVERED] * 10
    found = ids(kafka.read(topic))
    assert len(found) == len(set(found)) == 110


def test_commit_whose_answer_was_lost_is_known_to_the_next_owner(
    kafka: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.new_topic()
    real = Session.commit

    def commit(session: Session, *arguments: object) -> None:
        real(session, *arguments)  # type: ignore[arg-type]
        raise SinkUnavailable("the answer was lost", unknown=True)

    with opened(kafka.client, topic, exactly_once=True) as sink:
        one = claim(sink, range(5))
        with monkeypatch.context() as patch:
            patch.setattr(Session, "commit", commit)
            with pytest.raises(SinkUnavailable) as raised:
                sink.send(one)
        assert raised.value.unknown
        assert sink.send(one) == [DELIVERED] * 5
    with opened(kafka.client, topic, exactly_once=True, timeout=20) as heir:
        later = again(one)
        assert heir.send(batch([*later.messages, message(9)], token=heir.new_token())) == [DELIVERED] * 6
    assert len(kafka.read(topic)) == 6


def test_sender_that_stalls_between_two_commits_is_shut_out(
    kafka: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.new_topic()
    with (
        opened(kafka.client, topic, exactly_once=True, timeout=20) as heir,
        opened(kafka.client, topic, exactly_once=True, timeout=20) as zombie,
        ThreadPoolExecutor(1, thread_name_prefix="zombie") as pool,
    ):
        first = claim(zombie, range(6))
        with monkeypatch.context() as patch:
            # As if the first transaction had held half of it only.
            patch.setattr(Work, "wave", lambda work: Wave([at for at in (0, 1, 2) if at in work.undecided()], False))
            zombie.send(first)
        stalled = Stalled(monkeypatch)
        sending = pool.submit(until_known, zombie, first)
        assert stalled.there.wait(10)
        assert heir.send(again(first)) == [DELIVERED] * 6
        stalled.go.set()
        with pytest.raises(ClaimRevoked):
            sending.result(timeout=60)
    assert sorted(ids(kafka.read(topic))) == sorted(str(one.message_id) for one in first.messages)


def test_what_is_not_committed_is_not_read(kafka: KafkaCluster) -> None:
    topic = kafka.new_topic()
    with opened(kafka.client, topic, exactly_once=True) as sink:
        assert sink.send(claim(sink, range(1))) == [DELIVERED]
        sink.send(batch([message(1)], token=sink.new_token(), lost=lambda: True))
        assert len(kafka.read(topic)) == 1
        assert sink.send(claim(sink, range(2, 4))) == [DELIVERED] * 2
    assert len(kafka.read(topic)) == 3


def test_only_an_exactly_once_sink_is_fenced(kafka: KafkaCluster) -> None:
    assert not make(kafka.client, "t").fenced
    assert make(kafka.client, "t", exactly_once=True).fenced


def test_rights_that_it_needs_are_these(kafka: KafkaCluster) -> None:
    topic, claims = kafka.new_topic(), kafka.new_topic()
    user = kafka.client_as("relay")
    kafka.allow(topic, AclOperation.WRITE)
    with pytest.raises(SinkUnavailable, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        make(user, topic, exactly_once=True, claims_topic=claims).open()
    ids_of_sink = ("outbox-relay.orders.", AclOperation.WRITE)
    kafka.allow(*ids_of_sink, kind=ResourceType.TRANSACTIONAL_ID, pattern=ResourcePatternType.PREFIXED)
    with pytest.raises(SinkUnavailable, match=claims):
        make(user, topic, exactly_once=True, claims_topic=claims).open()
    for operation in (AclOperation.READ, AclOperation.WRITE):
        kafka.allow(claims, operation)
    with opened(user, topic, exactly_once=True, claims_topic=claims) as sink:
        one = claim(sink, range(3))
        assert sink.send(one) == [DELIVERED] * 3
    with opened(user, topic, exactly_once=True, claims_topic=claims) as heir:
        assert heir.send(again(one)) == [DELIVERED] * 3
    assert len(kafka.read(topic)) == 3


def test_all_that_was_sent_takes_one_byte_to_tell(kafka: KafkaCluster) -> None:
    topic, claims = kafka.new_topic(), new_name()
    with opened(kafka.client, topic, exactly_once=True, claims_topic=claims) as sink:
        assert sink.send(claim(sink, range(3))) == [DELIVERED] * 3
    (record,) = kafka.read(claims)
    assert record.value == b"a"
