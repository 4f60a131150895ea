"""A client made from a sink's configuration by botocore, which boto3 is a shell of, and its errors in our words.

Credentials, regions and endpoints are botocore's. Its retries are off: the relay alone sends again.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from inspect import signature
from typing import Any, Final, NamedTuple, Protocol

from botocore import exceptions as boto
from botocore.config import Config
from botocore.parsers import ResponseParserError
from botocore.session import Session

from sinks.base import BadClient, SinkConfig
from sinks.files import check_files
from sinks.sqs.errors import Cause, NotSent, Refused, Unanswered, describe

LARGEST_MESSAGE: Final = 2**20
"""Bytes: the service's own limit, for a queue whose attributes may not be read."""

FRESH_S: Final = 300.0
"""How long a queue's URL and size limit are believed."""

if logging.getLogger("botocore").level == logging.NOTSET:
    # At DEBUG it would write whole requests: payloads never go into logs.
    logging.getLogger("botocore").setLevel(logging.INFO)

_OURS = frozenset({"GetQueueUrl", "GetQueueAttributes", "SendMessageBatch"})
_NO_CREDENTIALS = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.CredentialRetrievalError,
    boto.MetadataRetrievalError,
    boto.TokenRetrievalError,
    boto.SSOError,
)
_NOT_SENT = (
    boto.EndpointConnectionError,
    boto.ConnectTimeoutError,
    boto.ProxyConnectionError,
    boto.SSLError,
)
_UNANSWERED = (boto.HTTPClientError, boto.ConnectionError, boto.ResponseStreamingError, boto.IncompleteReadError)


class Queue(NamedTuple):
    """What is known of a queue."""

    url: str
    limit: int
    """Bytes that a message, and all messages of a call together, may have."""
    until: float
    """When it must be looked up again, by the monotonic clock."""


class Sender(Protocol):
    """What calls `SendMessageBatch`."""

    def start(self, url: str, entries: Sequence[Mapping[str, Any]]) -> Future[Mapping[str, Any]]:
        """Begin a call; the future has the answer (`Successful` and `Failed`), or raises `SqsError`."""

    def close(self) -> None:
        """Give up every call that has not begun yet, and wait for none."""


class SqsClient:
    """Looks queues up, and sends by botocore, with threads of its own.

    Raises:
        NotSent: botocore finds no region, or no such profile.
    """

    def __init__(self, config: SinkConfig) -> None:
        options = config.options
        client = {**_from_queue_url(options.queue.text), **config.client}
        if options.region:
            client["region_name"] = options.region
        keys = [client.pop(f"aws_{name}", None) for name in ("access_key_id", "secret_access_key", "session_token")]
        try:
            self.session = Session(profile=client.pop("profile_name", None))
            self.session.register_component("data_loader", _models())
            if any(keys):
                self.session.set_credentials(*keys)
            client["config"] = _config(config, client.get("config"))
            self.boto = self.session.create_client("sqs", **client)
        except (boto.BotoCoreError, ValueError) as error:
            raise NotSent(describe(str(error))) from error
        self.verify: bool | str = client.get("verify", self.session.get_config_variable("ca_bundle") or True)
        """Whose certificates are trusted, as the option of this name of a boto3 client says it."""
        self.framed = True
        """False once the service was seen to answer without saying where the answer ends."""
        self._size_limit: int | None = options.size_limit
        self._queues: dict[str, Queue] = {}
        self._executor = ThreadPoolExecutor(options.in_flight, f"sqs-{config.name}")

    def queue(self, name: str) -> Future[Queue]:
        """What is known of the queue with this name or URL; asks SQS where that is not fresh.

        The future raises `SqsError` where it cannot be said.
        """
        known = self._queues.get(name)
        if known is None or known.until < time.monotonic():
            return self._executor.submit(self._look_up, name)
        future: Future[Queue] = Future()
        future.set_result(known)
        return future

    def credentials(self) -> Future[None]:
        """Done once there are credentials that do not expire now: renewing them can take long."""
        return self._executor.submit(self._renew)

    def forget(self, name: str) -> None:
        """What was known of this queue was wrong."""
        self._queues.pop(name, None)

    def start(self, url: str, entries: Sequence[Mapping[str, Any]]) -> Future[Mapping[str, Any]]:
        """Call `SendMessageBatch`; the answer has `Successful` and `Failed`. The future may raise `SqsError`."""
        return self._executor.submit(self._send, url, entries)

    def close(self) -> None:
        """Release connections. What waits for a thread is not called any more."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        self.boto.close()

    def _renew(self) -> None:
        with translated():
            if found := self.session.get_credentials():
                found.get_frozen_credentials()

    def _send(self, url: str, entries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        with translated():
            answer: Mapping[str, Any] = self.boto.send_message_batch(QueueUrl=url, Entries=entries)
        return answer

    def _look_up(self, name: str) -> Queue:
        url = name if "://" in name else str(self._ask(self.boto.get_queue_url, QueueName=name)["QueueUrl"])
        queue = Queue(url, self._size_limit or self._limit_of(url), time.monotonic() + FRESH_S)
        self._queues[name] = queue
        return queue

    def _limit_of(self, url: str) -> int:
        try:
            answer = self._ask(self.boto.get_queue_attributes, QueueUrl=url, AttributeNames=["MaximumMessageSize"])
        except Refused as error:
            # Who may only send may not read, and a service that plays SQS may not know the attribute.
            if error.cause in (Cause.DENIED, Cause.CONTENT, Cause.OTHER):
                return LARGEST_MESSAGE
            raise
        return int(answer.get("Attributes", {}).get("MaximumMessageSize", LARGEST_MESSAGE))

    def _ask(self, operation: Callable[..., Mapping[str, Any]], **parameters: Any) -> Mapping[str, Any]:
        try:
            with translated():
                answer = operation(**parameters)
        except Unanswered as error:
            raise NotSent(str(error)) from error
        headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        self.framed = "content-length" in headers or "transfer-encoding" in headers
        return answer


def check_options(config: SinkConfig) -> None:
    """
    Raises:
        BadClient: boto3 does not take an option of `client`.
    """
    known = {*signature(Session.create_client).parameters, "profile_name"} - {"self", "service_name"}
    if unknown := sorted(set(config.client) - known):
        raise BadClient(dict.fromkeys(unknown, "an option that boto3 knows"))
    try:
        _config(config, config.client.get("config"))
    except (TypeError, boto.BotoCoreError) as error:
        raise BadClient({"config": f"what botocore's Config takes: {error}"}) from error
    check_files(config.client, ["verify"])


@contextmanager
def translated() -> Iterator[None]:
    """botocore's errors as `SqsError`."""
    try:
        yield
    except boto.ClientError as error:
        if error.operation_name not in _OURS:
            # Some service that was to give us credentials said no.
            raise Refused("NoCredentials", str(error)) from error
        raise refused_by(error.response) from error
    except _NO_CREDENTIALS as error:
        raise Refused("NoCredentials", str(error)) from error
    except _NOT_SENT as error:
        raise NotSent(describe(str(error))) from error
    except (*_UNANSWERED, ResponseParserError) as error:
        raise Unanswered(describe(str(error))) from error
    except boto.BotoCoreError as error:
        raise NotSent(describe(str(error))) from error


def refused_by(response: Mapping[str, Any]) -> Refused:
    """The error that a parsed answer holds."""
    error = response.get("Error", {})
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400))
    return Refused(str(error.get("Code", "")), str(error.get("Message", "")), status)


@cache
def _models() -> Any:
    """The service models: reading them takes most of the time that a new client takes."""
    return Session().get_component("data_loader")


def _config(config: SinkConfig, given: Config | Mapping[str, Any] | None) -> Config:
    """botocore's configuration: ours, the given one over it, and no retries."""
    # Connecting and reading end within half of the send time-out, and no call starts in its second half.
    quarter = config.send_timeout / 4
    ours = Config(connect_timeout=quarter, read_timeout=quarter, max_pool_connections=config.options.in_flight)
    theirs = Config(**given) if isinstance(given, Mapping) else given or Config()
    if not isinstance(theirs, Config):
        raise TypeError(f"expected a table of botocore.config.Config's options, got {given!r}")
    return ours.merge(theirs).merge(Config(retries={"total_max_attempts": 1}))


def _from_queue_url(queue: str) -> dict[str, str]:
    """What the URL of a queue says of region and endpoint, for a configuration that says nothing itself."""
    if found := re.match(r"https://sqs\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/", queue):
        return {"region_name": found[1]}
    if any(name in os.environ for name in ("AWS_ENDPOINT_URL_SQS", "AWS_ENDPOINT_URL")):
        return {}
    found = re.match(r"https?://[^/{}\s]+(?=/)", queue)
    return {"endpoint_url": found[0]} if found else {}
