"""`/healthz`, `/readyz` and `/metrics` on one small server of its own thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from relay.errors import UsageError


class _Quiet(WSGIRequestHandler):
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
            self._server = make_server(host.strip("[]"), int(port), app, handler_class=_Quiet)
        except OSError as error:
            raise UsageError(f"--http: cannot listen on {address}: {error.strerror}") from error
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, name="http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
