"""An HTTP server that plays SQS: as strict as AWS, and with the answers that emulators never give.

It speaks the JSON protocol of `GetQueueUrl`, `GetQueueAttributes` and `SendMessageBatch`. Every queue exists unless it
is told to be missing. What `on_send` returns decides the answer to a `SendMessageBatch`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.servers.base import LOCALHOST, ServerUnavailable
from tests.servers.sqs_answers import Answer, Call, Cut, Failures, Fault, Raw, Silence, Slow
from tests.servers.sqs_rules import refusal

CLIENT = {"region_name": "eu-central-1", "aws_access_key_id": "AKIASTUB", "aws_secret_access_key": "secret"}


@dataclass
class SqsStub:
    """The service. Tests read and change its state while it runs."""

    scheme: str = "http"
    port: int = 0
    limit: int = 2**20
    """`MaximumMessageSize` of every queue; also what entries of a call together may have."""
    on_send: Callable[[Call], Answer | None] = lambda call: None
    on_question: Callable[[Call], Fault | Slow | None] = lambda call: None
    """The same for the other operations."""
    calls: list[Call] = field(default_factory=list)
    sent: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    """What the queues took: queue name and entry, in the order of arrival, second copies on FIFO queues left out."""
    taken: list[str] = field(default_factory=list)
    """Bodies of all that the queues took, second copies on FIFO queues too."""
    most_at_once: int = 0
    """How many calls were in work at the same time, at most."""
    _at_once: int = 0
    _seen: set[tuple[str, str]] = field(default_factory=set)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def url(self) -> str:
        return f"{self.scheme}://{LOCALHOST}:{self.port}"

    @property
    def client(self) -> dict[str, Any]:
        """boto3 options that lead here."""
        return {**CLIENT, "endpoint_url": self.url}

    def queue_url(self, name: str) -> str:
        return f"{self.url}/123456789012/{name}"

    def sends(self) -> list[Call]:
        with self._lock:
            return [call for call in self.calls if call.operation == "SendMessageBatch"]

    def bodies(self, queue: str | None = None) -> list[str]:
        with self._lock:
            return [entry["MessageBody"] for name, entry in self.sent if queue in (None, name)]

    def take(self, call: Call, but: frozenset[int] = frozenset()) -> None:
        with self._lock:
            for position, entry in enumerate(call.entries):
                if position not in but:
                    self.taken.append(entry["MessageBody"])
                identity = (call.queue, str(entry.get("MessageDeduplicationId")))
                if position in but or (call.queue.endswith(".fifo") and identity in self._seen):
                    continue
                self._seen.add(identity)
                self.sent.append((call.queue, entry))

    def answer(self, call: Call) -> bytes | Cut:
        with self._lock:
            self.calls.append(call)
        if call.operation == "SendMessageBatch":
            return self._send(call)
        told = self.on_question(call)
        if isinstance(told, Slow):
            time.sleep(told.seconds)
        if isinstance(told, Fault):
            return fault(told)
        if call.operation == "GetQueueUrl":
            return ok({"QueueUrl": self.queue_url(call.queue)})
        return ok({"Attributes": {"MaximumMessageSize": str(self.limit)}})

    def _send(self, call: Call) -> bytes | Cut:
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            return self._outcome(call, self.on_send(call) or refusal(call, self.limit))
        finally:
            with self._lock:
                self._at_once -= 1

    def _outcome(self, call: Call, told: Answer | None) -> bytes | Cut:
        match told:
            case Fault():
                return fault(told)
            case Cut(taken=False):
                return told
            case Slow(seconds):
                time.sleep(seconds)
            case _:
                pass
        failed = told.entries if isinstance(told, Failures) else {}
        text = told.text if isinstance(told, Failures) else ""
        unsaid = told.positions if isinstance(told, Silence) else frozenset()
        self.take(call, frozenset(failed))
        if isinstance(told, Cut):
            return told
        if isinstance(told, Raw):
            return told.data
        ids = [str(entry["Id"]) for entry in call.entries]
        return ok(
            {
                "Successful": [
                    {"Id": each, "MessageId": str(uuid4()), "MD5OfMessageBody": "0" * 32}
                    for position, each in enumerate(ids)
                    if position not in failed and position not in unsaid
                ],
                "Failed": [
                    {"Id": ids[position], "Code": code, "SenderFault": sender, "Message": text}
                    for position, (code, sender) in failed.items()
                ],
            }
        )


def ok(body: Mapping[str, Any]) -> bytes:
    return http(200, json.dumps(body).encode())


def fault(told: Fault) -> bytes:
    body = json.dumps({"__type": f"com.amazonaws.sqs#{told.shape or told.code}", "message": told.text}).encode()
    return http(told.status, body, f"x-amzn-query-error: {told.code};Sender\r\n" if told.shape else "")


def http(status: int, body: bytes, headers: str = "") -> bytes:
    kind = "Content-Type: application/x-amz-json-1.0\r\n"
    return f"HTTP/1.1 {status} -\r\n{kind}{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    stub: SqsStub
    numbers = itertools.count()

    def setup(self) -> None:
        super().setup()
        self.number = next(self.numbers)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        operation = self.headers["X-Amz-Target"].rpartition(".")[2]
        headers = {name.title(): value for name, value in self.headers.items()}
        answer = self.stub.answer(Call(operation, body, headers, self.number))
        if isinstance(answer, bytes):
            self.wfile.write(answer)
            self.close_connection = b"ontent-" not in answer
            return
        if answer.half:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        socket.close(self.connection.detach())
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def handle(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # the client is gone, or we cut it off
            super().handle()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # a full backlog would cost a client a second


@contextmanager
def run_stub(tls: tuple[Path, Path] | None = None, port: int = 0) -> Iterator[SqsStub]:
    """A running stub.

    Args:
        tls: files of a certificate and its key.
        port: 0: a free one.
    """
    stub = SqsStub(scheme="https" if tls else "http")
    handler = type("Handler", (_Handler,), {"stub": stub})
    server = _Server((LOCALHOST, port), handler)
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    stub.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="sqs-stub", daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def certificate(folder: Path) -> tuple[Path, Path]:
    """Files of a self-signed certificate for this machine and its key.

    Raises:
        ServerUnavailable: there is no `openssl`.
    """
    files = folder / "certificate.pem", folder / "key.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    try:
        subprocess.run(
            [*make, "-addext", f"subjectAltName=IP:{LOCALHOST}", "-out", files[0], "-keyout", files[1]],
            check=True,
            capture_output=True,
        )
    except FileNotFoundError as error:
        raise ServerUnavailable("a certificate", "openssl", "no openssl") from error
    return files


@pytest.fixture
def sqs_stub() -> Iterator[SqsStub]:
    """A stub of the test's own."""
    with run_stub() as stub:
        yield stub
