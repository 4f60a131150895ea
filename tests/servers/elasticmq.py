"""ElasticMQ: a server that speaks SQS's protocol, with its limits as far as it knows them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import pytest

from tests.servers.base import LOCALHOST, free_port, port_open, run_server
from tests.servers.packages import apt_install, maven_jars

JARS = "org.elasticmq:elasticmq-server_2.13:1.6.11"

_CONFIG = """
include classpath("application.conf")
node-address {{ protocol = http, host = {host}, port = {port}, context-path = "" }}
rest-sqs {{ enabled = true, bind-hostname = {host}, bind-port = {port}, sqs-limits = strict }}
rest-stats {{ enabled = false }}
queues-storage {{ enabled = false }}
messages-storage {{ enabled = false }}
"""


@dataclass(frozen=True)
class ElasticMq:
    """A running server."""

    port: int

    @property
    def url(self) -> str:
        return f"http://{LOCALHOST}:{self.port}"

    @property
    def client(self) -> dict[str, Any]:
        """boto3 options that lead here."""
        return {
            "endpoint_url": self.url,
            "region_name": "elasticmq",
            "aws_access_key_id": "x",
            "aws_secret_access_key": "x",
        }

    def boto(self) -> Any:
        return boto3.client("sqs", **self.client)

    def new_queue(self, *, fifo: bool = False, **attributes: str) -> str:
        """Create a queue of a fresh name; return its URL."""
        name = f"q-{uuid4().hex[:12]}"
        if fifo:
            name += ".fifo"
            attributes["FifoQueue"] = "true"
        return str(self.boto().create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])

    def take(self, queue_url: str) -> list[Mapping[str, Any]]:
        """Every message that can be received now, removed from the queue; those of a group in order."""
        client = self.boto()
        taken: list[Mapping[str, Any]] = []
        while messages := client.receive_message(
            QueueUrl=queue_url, MaxNumberOfMessages=10, MessageAttributeNames=["All"], AttributeNames=["All"]
        ).get("Messages"):
            taken += messages
            entries = [{"Id": str(n), "ReceiptHandle": each["ReceiptHandle"]} for n, each in enumerate(messages)]
            client.delete_message_batch(QueueUrl=queue_url, Entries=entries)
        return taken


@contextmanager
def run_elasticmq() -> Iterator[ElasticMq]:
    """A running server of one's own.

    Raises:
        ServerUnavailable: ElasticMQ or Java cannot be had here.
    """
    jars = maven_jars(JARS)
    if not shutil.which("java"):
        apt_install("default-jdk-headless")
    with tempfile.TemporaryDirectory(prefix="relay-test-elasticmq-") as folder:
        port = free_port()
        config = Path(folder) / "elasticmq.conf"
        config.write_text(_CONFIG.format(host=LOCALHOST, port=port))
        options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", f"-Dconfig.file={config}"]
        argv = ["java", *options, "-cp", f"{jars}/*", "org.elasticmq.server.Main"]
        with run_server(argv, ready=lambda: port_open(port), name="elasticmq", timeout=60):
            yield ElasticMq(port)


@pytest.fixture(scope="session")
def elasticmq() -> Iterator[ElasticMq]:
    """The server that tests share: use queues of your own."""
    with run_elasticmq() as server:
        yield server
