"""The contract suite over the SQS sink: against a stub as strict as AWS, and against ElasticMQ."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from sinks.base import Message, Sink, SinkConfig
from sinks.sqs.sink import SqsOptions, SqsSink
from sinks.testing import Received, SinkContract
from tests.servers.base import LOCALHOST
from tests.servers.elasticmq import ElasticMq
from tests.servers.proxy import FaultProxy
from tests.servers.sqs_stub import SqsStub
from tests.sqs_sinks import only_boto3


def received(body: str, attributes: Mapping[str, Mapping[str, str]]) -> Received:
    texts = {name: value["StringValue"] for name, value in attributes.items()}
    data = base64.b64decode(body) if texts.get("content-encoding") == "base64" else body.encode()
    return Received(texts["message_id"], texts["kind"], data)


class SqsContract(SinkContract):
    one_step = 10
    queue: str
    client: Mapping[str, Any]
    proxy: FaultProxy
    send_timeout = 5.0

    def make(self, *, ordered: bool = False) -> Sink:
        options = SqsOptions.model_validate({"queue": self.queue})
        return SqsSink(
            SinkConfig("orders", options, send_timeout=self.send_timeout, ordered=ordered, client=self.client)
        )

    def unsendable(self, message: Message) -> Message:
        return message._replace(kind="\x01")

    @contextmanager
    def outage(self) -> Iterator[None]:
        self.proxy.refuse()
        self.proxy.cut()
        yield
        self.proxy.resume()


class StubContract(SqsContract):
    @pytest.fixture(autouse=True)
    def _stub(self, sqs_stub: SqsStub) -> Iterator[None]:
        self.stub = sqs_stub
        with FaultProxy(LOCALHOST, sqs_stub.port) as self.proxy:
            self.client = {**sqs_stub.client, "endpoint_url": f"http://{LOCALHOST}:{self.proxy.port}"}
            yield

    def received(self) -> Sequence[Received]:
        return [received(entry["MessageBody"], entry["MessageAttributes"]) for _, entry in self.stub.sent]


class TestStandardQueue(StubContract):
    queue = "orders"


class TestFifoQueue(StubContract):
    queue = "orders.fifo"


class TestByBotocoreAlone(StubContract):
    queue = "orders"

    @pytest.fixture(autouse=True)
    def _way(self, monkeypatch: pytest.MonkeyPatch) -> None:
        only_boto3(monkeypatch)


@pytest.mark.full
class TestElasticMq(SqsContract):
    send_timeout = 30.0  # its FIFO queues are slow

    @pytest.fixture(autouse=True)
    def _queue(self, elasticmq: ElasticMq) -> Iterator[None]:
        self.server = elasticmq
        self.url = elasticmq.new_queue(fifo=True)
        self.queue = self.url.rpartition("/")[2]
        self.taken: list[Received] = []
        with FaultProxy(LOCALHOST, elasticmq.port) as self.proxy:
            self.client = {**elasticmq.client, "endpoint_url": f"http://{LOCALHOST}:{self.proxy.port}"}
            yield

    def received(self) -> Sequence[Received]:
        self.taken += [received(each["Body"], each["MessageAttributes"]) for each in self.server.take(self.url)]
        return self.taken
