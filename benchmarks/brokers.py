"""Draining to real Kafka and to an SQS stub, against the bare client loop: COPY out, then the client's own call."""

from __future__ import annotations

import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import psycopg
from botocore.config import Config
from confluent_kafka import Producer

from benchmarks.report import Report
from benchmarks.stage import Stage, stage
from tests.servers.kafka import KafkaCluster, new_cluster
from tests.servers.sqs_stub import run_stub

POSTGRES = 18
KAFKA_MESSAGES = 100_000
SQS_MESSAGES = 10_000
ROUNDS = 3

CONFIGURATION = """
[sinks.kafka]
type = "kafka"
topic = "{topic}"
client = {kafka}
[sinks.kafka-large]
type = "kafka"
topic = "{topic}"
batch_messages = 2500
client = {kafka}
[sinks.kafka-keys]
type = "kafka"
topic = "{topic}"
order = "key"
client = {kafka}
[sinks.kafka-once]
type = "kafka"
topic = "{topic}"
exactly_once = true
client = {kafka}
[sinks.sqs]
type = "sqs"
queue = "{queue}"
client = {sqs}
[[routes]]
kind = "to.kafka"
sink = "kafka"
[[routes]]
kind = "to.kafka-large"
sink = "kafka-large"
[[routes]]
kind = "to.kafka-keys"
sink = "kafka-keys"
[[routes]]
kind = "to.kafka-once"
sink = "kafka-once"
[[routes]]
kind = "to.sqs"
sink = "sqs"
"""

Stub = tuple[str, dict[str, Any]]


def main() -> None:
    report = Report("brokers")
    with tempfile.TemporaryDirectory() as name, new_cluster() as kafka, sqs_in_a_process() as (queue, sqs):
        topic = kafka.new_topic(partitions=12)
        configuration = CONFIGURATION.format(
            topic=topic, kafka=toml({"bootstrap.servers": kafka.bootstrap}), queue=queue, sqs=toml(sqs)
        )
        with stage(POSTGRES, configuration, Path(name)) as here:
            to_kafka(report, here, kafka, topic)
            to_sqs(report, here, queue, sqs)
    report.finish()


def to_kafka(report: Report, here: Stage, kafka: KafkaCluster, topic: str) -> None:
    bare = best(here, "kafka", KAFKA_MESSAGES, lambda: bare_kafka(here, kafka, topic))
    rates = {
        workers: best(here, "kafka", KAFKA_MESSAGES, partial(here.drain, "kafka", workers)) for workers in (1, 2, 3, 4)
    }
    large = best(here, "kafka-large", KAFKA_MESSAGES, lambda: here.drain("kafka-large", 2))
    ordered = best(here, "kafka-keys", KAFKA_MESSAGES, lambda: here.drain("kafka-keys", 2))
    rate = rates[1]
    once = best(here, "kafka-once", KAFKA_MESSAGES, lambda: here.drain("kafka-once", 1))
    report.add("COPY out and produce()", bare, "messages/s", versus="real Kafka 4.1, 12 partitions, lz4, idempotent")
    for workers, of_workers in rates.items():
        report.add(f"drain to Kafka, {workers} workers", of_workers, "messages/s")
    report.add(
        "drain to Kafka against the bare loop", max(rates.values()) / bare, "times", at_least=0.6, versus="same run"
    )
    report.add("drain to Kafka, batch_messages = 2500, 2 workers", large, "messages/s")
    report.add(
        "drain to Kafka, batch_messages = 2500, against the bare loop", large / bare, "times", versus="same run",
        at_least=0.6,
    )  # fmt: skip
    report.add("drain to Kafka in order, 2 workers", ordered, "messages/s")
    report.add("drain to Kafka in order against the bare loop", ordered / bare, "times", versus="same run")
    report.add("drain to Kafka, exactly_once, 1 worker", once, "messages/s")
    report.add("exactly_once against without", once / rate, "times", versus="same run")


def to_sqs(report: Report, here: Stage, queue: str, sqs: dict[str, Any]) -> None:
    bare = best(here, "sqs", SQS_MESSAGES, lambda: bare_sqs(here, queue, sqs))
    ours = best(here, "sqs", SQS_MESSAGES, lambda: here.drain("sqs", 1))
    report.add("COPY out and send_message_batch", bare, "messages/s", versus="SQS stub in a process of its own")
    report.add("drain to SQS, 1 worker", ours, "messages/s")
    report.add("drain to SQS against the bare loop", ours / bare, "times", at_least=0.6, versus="same run")


def best(here: Stage, sink: str, messages: int, run: Callable[[], object]) -> float:
    """Messages a second of the best of some rounds."""
    times = []
    for _ in range(ROUNDS):
        fill(here, sink, messages)
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return messages / min(times)


def fill(here: Stage, sink: str, messages: int) -> None:
    here.close_engines()
    here.empty()
    here.write(f"to.{sink}", messages, keys=1000)


def rows(here: Stage) -> Iterator[tuple[Any, ...]]:
    with (
        psycopg.connect(here.url) as conn,
        conn.cursor() as cursor,
        cursor.copy("copy (select message_id, kind, key, payload from relay.outbox order by id) to stdout") as copy,
    ):
        copy.set_types(["text", "text", "text", "text"])
        yield from copy.rows()


def bare_kafka(here: Stage, kafka: KafkaCluster, topic: str) -> None:
    producer = Producer({
        "bootstrap.servers": kafka.bootstrap, "enable.idempotence": True, "compression.type": "lz4", "linger.ms": 5,
        "partitioner": "murmur2_random",
    })  # fmt: skip
    delivered = 0

    def report(error: Any, _message: Any) -> None:
        nonlocal delivered
        delivered += error is None

    for message_id, kind, key, payload in rows(here):
        headers = [("message_id", message_id.encode()), ("kind", kind.encode())]
        while True:
            try:
                producer.produce(topic, payload.encode(), key.encode(), headers=headers, on_delivery=report)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush(60)
    assert delivered == KAFKA_MESSAGES


def bare_sqs(here: Stage, queue: str, options: dict[str, Any]) -> None:
    client = boto3.client("sqs", **{**options, "config": Config(retries={"total_max_attempts": 1})})
    batch: list[dict[str, Any]] = []

    def send() -> None:
        answer = client.send_message_batch(QueueUrl=queue, Entries=batch)
        assert len(answer["Successful"]) == len(batch)
        batch.clear()

    for message_id, kind, _key, payload in rows(here):
        attributes = {
            name: {"DataType": "String", "StringValue": value}
            for name, value in (("message_id", message_id), ("kind", kind))
        }
        batch.append({"Id": str(len(batch)), "MessageBody": payload, "MessageAttributes": attributes})
        if len(batch) == 10:
            send()
    if batch:
        send()


@contextmanager
def sqs_in_a_process() -> Iterator[Stub]:
    """The stub apart from the sender: its own work must not count."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    yield ours.recv()
    ours.send("stop")
    process.join(10)


def _serve(pipe: Any) -> None:
    with run_stub() as stub:
        pipe.send((stub.queue_url("bench"), stub.client))
        pipe.recv()


def toml(options: dict[str, Any]) -> str:
    return "{ " + ", ".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in options.items()) + " }"


if __name__ == "__main__":
    main()
