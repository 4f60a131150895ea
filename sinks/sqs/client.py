"""A client made from a sink's configuration by botocore, which boto3 is a shell of, and its errors in our words.

Credentials, regions and endpoints are botocore's. Its retries are off: the relay alone sends again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, NamedTuple, Protocol

from botocore import exceptions as boto
from botocore.parsers import ResponseParserError
from botocore.session import Session

from sinks.base import SinkConfig
from sinks.sqs.errors import Cause, NotSent, Refused, Unanswered, describe
from sinks.sqs.names import arn_of
from sinks.sqs.options import boto_config, place_options
from sinks.sqs.trouble import Pace

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
        client = {**place_options(options.queue.text), **config.client}
        if options.region:
            client["region_name"] = options.region
        keys = [client.pop(f"aws_{name}", None) for name in ("access_key_id", "secret_access_key", "session_token")]
        try:
            self.session = Session(profile=client.pop("profile_name", None))
            self.session.register_component("data_loader", _models())
            if any(keys):
                self.session.set_credentials(*keys)
            client["config"] = boto_config(config, client.get("config"))
            self.boto = self.session.create_client("sqs", **client)
        except (boto.BotoCoreError, ValueError) as error:
            raise NotSent(describe(str(error))) from error
        self.verify: bool | str = client.get("verify", self.session.get_config_variable("ca_bundle") or True)
        """Whose certificates are trusted, as the option of this name of a boto3 client says it."""
        self.framed = True
        """False once the service was seen to answer without saying where the answer ends."""
        self._in_flight: int = options.in_flight
        self._size_limit: int | None = options.size_limit
        self._queues: dict[str, Queue] = {}
        self._paces: dict[str, Pace] = {}
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

    def pace(self, name: str) -> Pace:
        """How many calls this queue takes at the same time."""
        return self._paces.setdefault(name, Pace(self._in_flight))

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
        if arn := arn_of(name):
            named = {"QueueName": arn.name, "QueueOwnerAWSAccountId": arn.account}
        else:
            named = {"QueueName": name}
        url = name if "://" in name else str(self._ask(self.boto.get_queue_url, **named)["QueueUrl"])
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
