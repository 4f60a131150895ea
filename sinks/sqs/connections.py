"""Connections of `awscrt` to one endpoint, kept open between calls."""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import Future
from typing import Final, Protocol
from urllib.parse import SplitResult

from awscrt import http, io
from botocore.httpsession import get_cert_path

from sinks.sqs.errors import NotSent, SqsError, describe

IDLE_S: Final = 10.0
"""For how long an idle connection may be used again: later the service may be about to close it."""


class Exchange(Protocol):
    """What waits for a connection. It hears of one of these once, by any thread."""

    def begin(self, connection: http.HttpClientConnection) -> None:
        """Use it, and give it back."""

    def fail(self, error: SqsError) -> None:
        """There is none to be had."""


class Connections:
    """The last used is used next."""

    def __init__(self, url: SplitResult, verify: bool | str, connect_timeout: float) -> None:
        """
        Args:
            connect_timeout: seconds.
        """
        self._host = url.hostname or ""
        secure = url.scheme == "https"
        self._port = url.port or (443 if secure else 80)
        self._tls = _tls(verify) if secure else None
        self._connect_ms = max(1, int(connect_timeout * 1000))
        self._bootstrap = io.ClientBootstrap.get_or_create_static_default()
        self._idle: deque[tuple[http.HttpClientConnection, float]] = deque()
        self._busy: set[http.HttpClientConnection] = set()
        self._waiting: set[Exchange] = set()
        self._closed = False
        # So that no exchange is both failed and begun.
        self._lock = threading.Lock()

    def hand_to(self, exchange: Exchange) -> None:
        """Give the exchange an open connection, at once or when there is one."""
        while self._idle:
            connection, since = self._idle.pop()
            if connection.is_open() and time.monotonic() - since < IDLE_S:
                with self._lock:
                    self._busy.add(connection)
                exchange.begin(connection)
                return
            connection.close()
        with self._lock:
            self._waiting.add(exchange)
        options = io.SocketOptions()
        options.connect_timeout_ms = self._connect_ms
        tls = None
        if self._tls is not None:
            tls = self._tls.new_connection_options()
            tls.set_server_name(self._host)
        connecting = http.HttpClientConnection.new(
            self._host, self._port, self._bootstrap, socket_options=options, tls_connection_options=tls
        )
        connecting.add_done_callback(lambda done: self._connected(exchange, done))

    def give_back(self, connection: http.HttpClientConnection, *, broken: bool) -> None:
        with self._lock:
            self._busy.discard(connection)
            if connection.is_open() and not broken and not self._closed:
                self._idle.append((connection, time.monotonic()))
                return
        connection.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            waiting, self._waiting = self._waiting, set()
            connections = [*self._busy, *[idle for idle, _ in self._idle]]
            self._idle.clear()
        for exchange in waiting:
            exchange.fail(NotSent(f"{self._host}:{self._port}: no connection in time"))
        for connection in connections:
            connection.close()

    def _connected(self, exchange: Exchange, connecting: Future[http.HttpClientConnection]) -> None:
        error = connecting.exception()
        with self._lock:
            if self._closed:
                # Nobody waits any more: a request that left now would be a second copy later.
                if error is None:
                    connecting.result().close()
                return
            self._waiting.discard(exchange)
            if error is None:
                self._busy.add(connecting.result())
        if error is None:
            exchange.begin(connecting.result())
        else:
            exchange.fail(NotSent(describe(f"{self._host}:{self._port}", str(error))))


def _tls(verify: bool | str) -> io.ClientTlsContext:
    """A context that trusts what boto3 would trust: a small container may have no authorities of its own.

    Args:
        verify: boto3's option; a text is a file of certificates.
    """
    options = io.TlsContextOptions()
    if verify is False:
        options.verify_peer = False
    else:
        options.override_default_trust_store_from_path(ca_filepath=get_cert_path(verify))
    return io.ClientTlsContext(options)
