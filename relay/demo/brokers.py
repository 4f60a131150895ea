"""What the brokers hold, asked of the brokers themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol
from uuid import UUID

import redis
from confluent_kafka import Consumer, TopicPartition

from relay.demo.servers import Servers, sqs_client

TOPIC: Final = "orders"


def short(message_id: UUID | str | None) -> str:
    """A message's id in the 24 digits that Sidekiq has room for."""
    return str(message_id).replace("-", "")[:24]


class Broker(Protocol):
    """One of the four."""

    title: str

    def count(self) -> int:
        """How many messages it holds by its own count."""
        ...

    def ids(self) -> list[str]:
        """Short ids of all messages that it holds, every copy."""
        ...


class Stream:
    title = "Redis stream"

    def __init__(self, client: redis.Redis) -> None:
        self._client: Any = client

    def count(self) -> int:
        return int(self._client.xlen("orders"))

    def ids(self) -> list[str]:
        return [short(fields[b"message_id"].decode()) for _, fields in self._client.xrange("orders")]


class SidekiqQueues:
    title = "Sidekiq queues"

    def __init__(self, client: redis.Redis) -> None:
        self._client: Any = client

    def count(self) -> int:
        return sum(self._client.llen(queue) for queue in self._queues())

    def ids(self) -> list[str]:
        return [json.loads(job)["jid"] for queue in self._queues() for job in self._client.lrange(queue, 0, -1)]

    def _queues(self) -> list[str]:
        return [f"queue:{name.decode()}" for name in sorted(self._client.smembers("queues"))]


class KafkaTopic:
    title = "Kafka topic"

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def count(self) -> int:
        return sum(self._ends().values())

    def ids(self) -> list[str]:
        ends = self._ends()
        self._consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in ends])
        ids: list[str] = []
        while len(ids) < sum(ends.values()):
            records = self._consumer.consume(1000, timeout=5.0)
            if not records:
                break
            headers: list[dict[str, Any]] = [dict(record.headers() or ()) for record in records]
            ids += [short(each["message_id"].decode()) for each in headers]
        return ids

    def _ends(self) -> dict[int, int]:
        partitions = self._consumer.list_topics(TOPIC, timeout=5.0).topics[TOPIC].partitions
        return {
            partition: self._consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=5.0)[1]
            for partition in partitions
        }


class SqsQueue:
    title = "SQS queue"

    def __init__(self, queue_url: str) -> None:
        self._url = queue_url
        self._client = sqs_client(queue_url.partition("//")[0] + "//" + queue_url.split("/")[2])

    def count(self) -> int:
        names = ["ApproximateNumberOfMessages"]
        found = self._client.get_queue_attributes(QueueUrl=self._url, AttributeNames=names)
        return int(found["Attributes"][names[0]])

    def ids(self) -> list[str]:
        ids: list[str] = []
        while messages := self._receive():
            ids += [short(one["MessageAttributes"]["message_id"]["StringValue"]) for one in messages]
        return ids

    def _receive(self) -> Sequence[Any]:
        """Up to ten messages, which are gone from the queue then."""
        messages: Sequence[Any] = self._client.receive_message(
            QueueUrl=self._url, MaxNumberOfMessages=10, MessageAttributeNames=["message_id"]
        ).get("Messages", ())
        if messages:
            entries = [{"Id": str(at), "ReceiptHandle": one["ReceiptHandle"]} for at, one in enumerate(messages)]
            self._client.delete_message_batch(QueueUrl=self._url, Entries=entries)
        return messages


@contextmanager
def connected(servers: Servers) -> Iterator[dict[str, Broker]]:
    """The brokers, by the name of the sink that sends to each."""
    consumer = Consumer({"bootstrap.servers": servers.kafka, "group.id": "demo", "log_level": 0})
    client = redis.Redis.from_url(servers.redis)
    try:
        yield {
            "stream": Stream(client),
            "jobs": SidekiqQueues(client),
            "kafka": KafkaTopic(consumer),
            "sqs": SqsQueue(servers.sqs),
        }
    finally:
        consumer.close()
        client.close()
