"""The proxy that breaks connections: what each fault looks like to a client."""

from __future__ import annotations

import contextlib
import gc
import socket
import socketserver
import threading
import time
from collections.abc import Iterator

import pytest

from tests.servers.base import LOCALHOST, wait_until
from tests.servers.proxy import Direction, FaultProxy


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        with contextlib.suppress(OSError):
            while data := self.request.recv(65536):
                self.request.sendall(data)


class Shout(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        with contextlib.suppress(OSError):
            while data := self.request.recv(65536):
                self.request.sendall(data.upper())


@contextlib.contextmanager
def serving(handler: type[socketserver.BaseRequestHandler]) -> Iterator[int]:
    with socketserver.ThreadingTCPServer((LOCALHOST, 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy() -> Iterator[FaultProxy]:
    with serving(Echo) as port, FaultProxy(LOCALHOST, port) as proxy:
        yield proxy


@contextlib.contextmanager
def client(proxy: FaultProxy) -> Iterator[socket.socket]:
    with socket.create_connection((LOCALHOST, proxy.port), timeout=5) as connection:
        yield connection


def ask(connection: socket.socket, data: bytes) -> bytes:
    """Send, and read as many bytes back, or those that come before the end."""
    connection.sendall(data)
    return receive(connection, len(data))


def receive(connection: socket.socket, count: int) -> bytes:
    answer = b""
    while len(answer) < count and (data := connection.recv(count - len(answer))):
        answer += data
    return answer


def test_it_forwards_faithfully(proxy: FaultProxy) -> None:
    data = bytes(range(256)) * 4000
    with client(proxy) as connection:
        sender = threading.Thread(target=connection.sendall, args=(data,))
        sender.start()
        assert receive(connection, len(data)) == data
        sender.join()
        assert proxy.forwarded(Direction.TO_SERVER) == len(data)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""
    wait_until(lambda: proxy.connections == 0)


def test_a_cut_by_reset(proxy: FaultProxy) -> None:
    with client(proxy) as connection:
        ask(connection, b"hello")
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            connection.recv(1)


def test_a_cut_by_an_orderly_end(proxy: FaultProxy) -> None:
    with client(proxy) as connection:
        ask(connection, b"hello")
        proxy.cut(reset=False)
        assert connection.recv(1) == b""


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_a_cut_after_some_bytes_to_the_client(proxy: FaultProxy, size: int) -> None:
    with client(proxy) as connection:
        ask(connection, b"before")
        proxy.cut_after(size, Direction.TO_CLIENT, reset=False)
        sender = threading.Thread(target=_send_regardless, args=(connection, b"x" * (size + 5)))
        sender.start()
        assert receive(connection, size + 5) == b"x" * size
        sender.join()
    with client(proxy) as other:
        assert ask(other, b"once only") == b"once only"


def _send_regardless(connection: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(data)


def test_a_cut_after_some_bytes_to_the_server(proxy: FaultProxy) -> None:
    with client(proxy) as connection:
        proxy.cut_after(3, Direction.TO_SERVER)
        connection.sendall(b"12345")
        with pytest.raises(ConnectionResetError):
            receive(connection, 5)
        assert proxy.forwarded(Direction.TO_SERVER) == 3


def test_a_stall_holds_bytes_back_until_it_resumes(proxy: FaultProxy) -> None:
    with client(proxy) as old:
        proxy.stall(Direction.TO_CLIENT)
        old.sendall(b"held")
        wait_until(lambda: proxy.forwarded(Direction.TO_SERVER) == 4)
        old.settimeout(0.1)
        with pytest.raises(TimeoutError):
            old.recv(1)
        with client(proxy) as new:
            new.settimeout(0.1)
            new.sendall(b"too")
            with pytest.raises(TimeoutError):
                new.recv(1)
            proxy.resume()
            new.settimeout(5)
            assert receive(new, 3) == b"too"
        old.settimeout(5)
        assert receive(old, 4) == b"held"


def test_a_cut_reaches_a_stalled_connection(proxy: FaultProxy) -> None:
    with client(proxy) as connection:
        ask(connection, b"hello")
        proxy.stall()
        connection.sendall(b"held")
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            connection.recv(1)


def test_new_connections_are_refused_and_old_ones_left_alone(proxy: FaultProxy) -> None:
    with client(proxy) as old:
        ask(old, b"hello")
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((LOCALHOST, proxy.port), timeout=5)
        assert ask(old, b"still here") == b"still here"
        proxy.resume()
    with client(proxy) as new:
        assert ask(new, b"again") == b"again"


@pytest.mark.parametrize(("fault", "least"), [({"delay": 0.1}, 0.2), ({"rate": 1000}, 0.1)])
def test_slowness(proxy: FaultProxy, fault: dict[str, float], least: float) -> None:
    proxy.slow(delay=fault.get("delay", 0.0), rate=int(fault["rate"]) if "rate" in fault else None)
    with client(proxy) as connection:
        begun = time.monotonic()
        ask(connection, b"x" * 100)
        assert time.monotonic() - begun >= least
        proxy.resume()
        assert ask(connection, b"y") == b"y"


def test_new_connections_can_move_to_another_server(proxy: FaultProxy) -> None:
    with serving(Shout) as port, client(proxy) as old:
        assert ask(old, b"quiet") == b"quiet"
        proxy.move(LOCALHOST, port)
        with client(proxy) as new:
            assert ask(new, b"loud") == b"LOUD"
        assert ask(old, b"quiet") == b"quiet"


def test_a_server_that_is_gone_resets_the_client() -> None:
    with serving(Echo) as port:
        pass
    # It may come while the client still connects.
    with FaultProxy(LOCALHOST, port) as proxy, pytest.raises(ConnectionResetError), client(proxy) as connection:
        connection.recv(1)


def test_a_proxy_that_stops_leaves_no_socket_open() -> None:
    # The session's warnings are errors, so a socket that is left open fails the test.
    with serving(Echo) as port:
        for _ in range(50):
            with FaultProxy(LOCALHOST, port) as proxy:
                proxy.stall(Direction.TO_SERVER)
                clients = [socket.create_connection((LOCALHOST, proxy.port)) for _ in range(5)]
            for each in clients:
                each.close()
            del proxy
        gc.collect()


@pytest.mark.parametrize(
    ("url", "upstream", "expected"),
    [
        ("redis://127.0.0.1:6379/0", ("127.0.0.1", 6379), "redis://127.0.0.1:{}/0"),
        ("postgresql://u:p@db:5432/app?x=1", ("db", 5432), "postgresql://u:p@127.0.0.1:{}/app?x=1"),
    ],
)
def test_a_url_by_way_of_the_proxy(url: str, upstream: tuple[str, int], expected: str) -> None:
    with FaultProxy.before(url) as proxy:
        assert proxy.upstream == upstream
        assert proxy.url(url) == expected.format(proxy.port)
