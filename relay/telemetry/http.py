"""`/healthz`, `/readyz` and `/metrics` on one small server of its own thread."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from relay.errors import UsageError

MOST_CONNECTIONS = 32
REQUEST_S = 5.0
"""From its first byte to its last: a client that drips bytes must not hold a thread."""


class _Server(ThreadingMixIn, WSGIServer):
    """A thread a request, within bounds: strangers may neither hold all threads nor take the relay's descriptors."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[WSGIRequestHandler]) -> None:
        self._open: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        super().__init__(address, handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError:
            # Such as no descriptor left. The connection still waits: without a pause this thread would spin.
            time.sleep(0.2)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._open) >= MOST_CONNECTIONS:
                # The oldest has had the most time: whoever asks quickly, such as a health check, is answered.
                oldest = next(iter(self._open))
                del self._open[oldest]
                _hang_up(oldest)
            self._open[request] = time.monotonic()
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Called by the serving thread between requests, at least twice a second."""
        before = time.monotonic() - REQUEST_S
        with self._lock:
            for request, since in self._open.items():
                if since < before:
                    _hang_up(request)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # A client that goes away, or never asks, is no event of the relay's.


class _ServerV6(_Server):
    address_family = socket.AF_INET6


def _hang_up(request: socket.socket) -> None:
    with suppress(OSError):  # It may be gone already.
        request.shutdown(socket.SHUT_RDWR)


class _Quiet(WSGIRequestHandler):
    timeout = REQUEST_S

    def log_message(self, format: str, *args: Any) -> None:
        pass


class HttpServer:
    """Serves until `close`.

    Args:
        address: ``HOST:PORT``, ``[::1]:PORT`` for IPv6; an empty host is every IPv4 address, port 0 a free one.
        healthy: whether the process works at all.
        ready: whether it can reach the database. A broker that is down does not make it unready.

    Raises:
        UsageError: the address is malformed or taken.
    """

    def __init__(
        self, address: str, registry: CollectorRegistry, healthy: Callable[[], bool], ready: Callable[[], bool]
    ) -> None:
        host, colon, port = address.rpartition(":")
        if not colon or not port.isdigit():
            raise UsageError(f"--http: expected HOST:PORT, got {address}")
        metrics: Callable[..., Iterable[bytes]] = make_wsgi_app(registry)
        checks = {"/healthz": healthy, "/readyz": ready}

        def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            path = environ["PATH_INFO"]
            if path == "/metrics":
                return metrics(environ, start_response)
            check = checks.get(path)
            good = check is not None and check()
            status = "404 Not Found" if check is None else "200 OK" if good else "503 Service Unavailable"
            start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
            return [b"ok\n" if good else b"not ok\n"]

        try:
            server = _ServerV6 if ":" in host else _Server
            self._server = make_server(host.strip("[]"), int(port), app, server, _Quiet)
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise UsageError(f"--http: cannot listen on {address}: {reason}") from error
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, name="http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
