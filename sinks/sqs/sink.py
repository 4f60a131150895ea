"""Messages in Amazon SQS queues, standard or FIFO.

A FIFO queue refuses second copies within five minutes by the message id; beyond, and on standard queues, every copy
carries the same `message_id`. What a message looks like there is in `entries.py`, what may go together in
`batches.py`, what SQS's errors mean in `errors.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, ByteSize, Field, TypeAdapter, ValidationError, field_validator

from sinks.base import Batch, Message, Outcome, Sink, SinkConfig, SinkUnavailable
from sinks.envelopes.cloudevents import StructuredOptions, structured
from sinks.sqs.client import Sender, SqsClient
from sinks.sqs.crt import CrtSender
from sinks.sqs.entries import EntryMaker
from sinks.sqs.errors import NotSent
from sinks.sqs.names import EXPECTED, is_queue
from sinks.sqs.options import check_options
from sinks.sqs.sending import Sending
from sinks.template import Template


def _size(value: object) -> int:
    try:
        return TypeAdapter(ByteSize).validate_python(value)
    except ValidationError:
        raise ValueError('a number of bytes, or a text such as "256KiB"') from None


LARGEST: Final = 2**20
"""Bytes of a message, in any queue."""


class SqsOptions(StructuredOptions):
    """Configuration keys of `type = "sqs"`."""

    queue: Template
    """Name, URL or ARN. A URL or an ARN also says the region, a URL the endpoint, too, unless it is the usual one."""
    group: Template | None = None
    """Message group. Default: `"{key}"` on FIFO queues; no groups on standard queues, where they make a queue *fair*.
    What AWS would refuse as a group id becomes `sha256-…`; a message without a key is a group of its own."""
    region: str | None = None
    """Default: as botocore finds it."""
    in_flight: Annotated[int, Field(ge=1, le=64)] = 8
    """Calls at the same time."""
    size_limit: Annotated[int, BeforeValidator(_size), Field(ge=1024)] | None = None
    """Most bytes of a message, and of ten together. Default: the queue's `MaximumMessageSize`, looked up every five
    minutes; 1 MiB where that may not be read."""
    schedule: Literal["relay", "sqs"] = "relay"
    """Who holds a scheduled message back: `"sqs"` hands it over at most 15 minutes early, on standard queues."""

    @field_validator("queue")
    @classmethod
    def _may_be_a_queue(cls, queue: Template) -> Template:
        if queue.constant is not None and not is_queue(queue.constant):
            raise ValueError(EXPECTED)
        return queue


class SqsSink(Sink):
    """Ten messages a call, several calls in flight. boto3's own retries are off: the relay alone sends again."""

    Options = SqsOptions
    hand_over_s = 900

    def __init__(self, config: SinkConfig) -> None:
        """
        Raises:
            ValueError: boto3 does not know an option of `client`.
        """
        super().__init__(config)
        check_options(config)
        options = config.options
        self.largest = options.size_limit or LARGEST
        self._maker = EntryMaker(
            config.name,
            options.queue,
            options.group,
            ordered=config.ordered,
            schedule=options.schedule == "sqs",
            envelope=structured(config),
        )
        self._client: SqsClient | None = None
        self._sender: CrtSender | None = None

    def fingerprint(self) -> str:
        endpoint = urlsplit(str(self.config.client.get("endpoint_url", ""))).netloc.rpartition("@")[2]
        return f"sqs {endpoint or self.config.options.region or ''} queue {self.config.options.queue}"

    @property
    def sole_destination(self) -> str | None:
        queue: Template = self.config.options.queue
        return queue.constant

    def destination(self, message: Message) -> str | None:
        return self._maker.queue_of(message)

    def open(self) -> None:
        self._open()

    def send(self, batch: Batch) -> Sequence[Outcome]:
        if not batch.messages:
            return []
        client = self._open()
        sending = Sending(batch, self.config, self._maker, client, lambda: self._sender_of(client))
        try:
            return sending.run()
        finally:
            if sending.trouble.bad_credentials or sending.abandoned:
                # A fresh session reads fresh credentials, and has no call in flight whose answer nobody waits for.
                self.close()

    def close(self) -> None:
        for resource in (self._sender, self._client):
            if resource is not None:
                resource.close()
        self._sender = self._client = None

    def _open(self) -> SqsClient:
        if self._client is None:
            try:
                self._client = SqsClient(self.config)
            except NotSent as error:
                raise SinkUnavailable(str(error), unknown=False) from error
        return self._client

    def _sender_of(self, client: SqsClient) -> Sender:
        if not CrtSender.fits(client):
            return client
        if self._sender is None:
            self._sender = CrtSender(client)
        return self._sender
