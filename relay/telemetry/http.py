"""`/healthz`, `/readyz` and `/metrics` on one small server of its own thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from relay.errors import UsageError


class _Server(ThreadingMixIn, WSGIServer):
    """A thread a request: a client that says nothing must not keep others from being answered."""

    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # A client that goes away, or never asks, is no event of the relay's.


class _Quiet(WSGIRequestHandler):
    timeout = 30
    """Seconds that a client may be silent."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


class HttpServer:
    """Serves until `close`.

    Args:
        address: ``HOST:PORT``; an empty host is every address, port 0 a free one.
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
            self._server = make_server(host.strip("[]"), int(port), app, _Server, _Quiet)
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise UsageError(f"--http: cannot listen on {address}: {reason}") from error
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, name="http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
