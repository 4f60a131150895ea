"""`SendMessageBatch` through AWS's own HTTP client and signer, the library `awscrt`.

boto3 spends most of its CPU time on a call outside the signature and the network. This does the same call for a quarter
of it; credentials, region and endpoint are still botocore's, and so is the reading of errors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

from awscrt import auth, http
from awscrt.exceptions import AwsCrtError
from botocore.awsrequest import HeadersDict
from botocore.parsers import ResponseParserError, create_parser
from botocore.utils import get_environ_proxies

from sinks.sqs.client import SqsClient, refused_by, translated
from sinks.sqs.connections import Connections
from sinks.sqs.errors import NotSent, SqsError, Unanswered, describe


class CrtSender:
    """Sends over connections that are kept. Its answers come by threads of the library."""

    def __init__(self, client: SqsClient) -> None:
        """
        Raises:
            SqsError: there are no credentials.
        """
        boto = client.boto
        with translated():
            # The public way to hear which endpoint botocore's rules choose.
            url = urlsplit(boto.generate_presigned_url("get_queue_url", Params={"QueueName": "q"}))
        self._client = client
        self._path = url.path or "/"
        self._region = boto.meta.region_name
        self._credentials = client.session.get_credentials()
        self._parser = create_parser("json")
        model = boto.meta.service_model
        self._shape = model.operation_model("SendMessageBatch").output_shape
        self._headers = [
            ("Host", url.netloc),
            ("Content-Type", f"application/x-amz-json-{model.metadata['jsonVersion']}"),
            ("X-Amz-Target", f"{model.metadata['targetPrefix']}.SendMessageBatch"),
            # Asks for the error codes of the query protocol, as botocore does.
            ("x-amzn-query-mode", "true"),
            ("User-Agent", boto.meta.config.user_agent),
        ]
        self._connections = Connections(url, client.verify, boto.meta.config.connect_timeout)

    @staticmethod
    def fits(client: SqsClient) -> bool:
        """Whether nothing is configured, and nothing was seen, that only botocore's own HTTP client can do."""
        config = client.boto.meta.config
        proxies = config.proxies or get_environ_proxies(client.boto.meta.endpoint_url)
        return client.framed and config.signature_version == "v4" and not (proxies or config.client_cert)

    def start(self, url: str, entries: Sequence[Mapping[str, Any]]) -> Future[Mapping[str, Any]]:
        """Call `SendMessageBatch`; the answer has `Successful` and `Failed`. The future may raise `SqsError`."""
        body = json.dumps({"QueueUrl": url, "Entries": entries}).encode()
        headers = http.HttpHeaders([*self._headers, ("Content-Length", str(len(body)))])
        request = http.HttpRequest("POST", self._path, headers, BytesIO(body))
        exchange = Exchange(self, self._connections, request)
        try:
            self._sign(request)
        except SqsError as error:
            exchange.future.set_exception(error)
        else:
            self._connections.hand_to(exchange)
        return exchange.future

    def close(self) -> None:
        """Break every connection, also those whose answer is still to come."""
        self._connections.close()

    def _sign(self, request: http.HttpRequest) -> None:
        with translated():
            # Asked each time: botocore renews temporary credentials before they expire.
            frozen = self._credentials.get_frozen_credentials()
        provider = auth.AwsCredentialsProvider.new_static(frozen.access_key, frozen.secret_key, frozen.token)
        signing = auth.AwsSigningConfig(
            algorithm=auth.AwsSigningAlgorithm.V4,
            signature_type=auth.AwsSignatureType.HTTP_REQUEST_HEADERS,
            credentials_provider=provider,
            region=self._region,
            service="sqs",
        )
        auth.aws_sign_request(request, signing).result()

    def read(self, status: int, headers: HeadersDict, body: bytes) -> Mapping[str, Any]:
        """What an answer says.

        Raises:
            SqsError: it is an error, or no answer of SQS's.
        """
        if "content-length" not in headers and "transfer-encoding" not in headers:
            # This library reads no body that ends with its connection, as servers of HTTP/1.0 send it.
            self._client.framed = False
        try:
            if status == 200:
                answer: Mapping[str, Any] = json.loads(body)
                return answer
            parsed = self._parser.parse({"headers": headers, "status_code": status, "body": body}, self._shape)
        except (ValueError, ResponseParserError) as error:
            raise Unanswered(f"HTTP status {status}, and an answer that is not JSON") from error
        raise refused_by(parsed)


class Exchange:
    """One request and what comes back. Its methods are called by the library's threads."""

    def __init__(self, sender: CrtSender, connections: Connections, request: http.HttpRequest) -> None:
        self.future: Future[Mapping[str, Any]] = Future()
        self._sender = sender
        self._connections = connections
        self._request = request
        self._status = 0
        self._headers = HeadersDict()
        self._body = bytearray()

    def begin(self, connection: http.HttpClientConnection) -> None:
        """Send the request."""
        try:
            stream = connection.request(self._request, self._on_response, self._on_body)
            stream.activate()
        except (AwsCrtError, RuntimeError) as error:
            self._connections.give_back(connection, broken=True)
            self.fail(NotSent(describe("the connection closed", str(error))))
        else:
            stream.completion_future.add_done_callback(lambda ended: self._on_end(connection, ended))

    def fail(self, error: SqsError) -> None:
        self.future.set_exception(error)

    def _on_response(self, status_code: int, headers: Sequence[tuple[str, str]], **_: Any) -> None:
        self._status = status_code
        self._headers.update(headers)

    def _on_body(self, chunk: bytes, **_: Any) -> None:
        self._body += chunk

    def _on_end(self, connection: http.HttpClientConnection, ended: Future[int]) -> None:
        error = ended.exception()
        self._connections.give_back(connection, broken=error is not None)
        if error is not None:
            self.fail(Unanswered(describe(str(error))))
            return
        try:
            self.future.set_result(self._sender.read(self._status, self._headers, bytes(self._body)))
        except SqsError as refused:
            self.fail(refused)
