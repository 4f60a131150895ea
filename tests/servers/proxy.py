"""A TCP proxy that breaks connections on demand, to stand in front of any server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit
from weakref import WeakSet

from tests.servers.base import LOCALHOST

CHUNK = 64 * 1024
T = TypeVar("T")
Pair = tuple[asyncio.StreamWriter, asyncio.StreamWriter]
"""The writers towards the client and towards the server of one connection."""


class Direction(Enum):
    TO_SERVER = "to server"
    TO_CLIENT = "to client"


BOTH = (Direction.TO_SERVER, Direction.TO_CLIENT)


@dataclass
class _Rules:
    """What happens to bytes of one direction."""

    flowing: asyncio.Event = field(default_factory=asyncio.Event)
    delay: float = 0.0
    rate: int | None = None
    """Bytes a second."""
    left: int | None = None
    """Bytes until the connection that carries them is cut."""
    forwarded: int = 0

    def chunk(self) -> int:
        return CHUNK if self.rate is None else max(1, min(CHUNK, self.rate // 20))

    async def hold_back(self, size: int) -> None:
        await self.flowing.wait()
        if pause := self.delay + (size / self.rate if self.rate else 0.0):
            await asyncio.sleep(pause)
        await self.flowing.wait()


class FaultProxy:
    """Forwards to a server, faultlessly until told otherwise. Use it in a `with` block.

    Every method may be called from any thread while connections are open, and has taken effect when it
    returns. Faults of `directions` concern both unless one is named.
    """

    def __init__(self, host: str, port: int) -> None:
        self.upstream = (host, port)
        self.port = 0
        self.accepted = 0
        """How many connections it has accepted so far."""
        self._rules: dict[Direction, _Rules] = {}
        self._reset_on_limit = True
        self._listener: asyncio.Server | None = None
        self._pairs: set[Pair] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._writers: WeakSet[asyncio.StreamWriter] = WeakSet()
        """Of every connection, also one that has no server yet, or has ended and not said all."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)

    @classmethod
    def before(cls, url: str) -> FaultProxy:
        """A proxy in front of the server of this URL."""
        parts = urlsplit(url)
        if parts.hostname is None or parts.port is None:
            raise ValueError("the URL must name a host and a port")
        return cls(parts.hostname, parts.port)

    def url(self, url: str) -> str:
        """The same URL, by way of this proxy."""
        parts = urlsplit(url)
        login = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
        return parts._replace(netloc=f"{login}{LOCALHOST}:{self.port}").geturl()

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def connections(self) -> int:
        """How many connections are open through it now."""
        return len(self._pairs)

    def forwarded(self, direction: Direction) -> int:
        """How many bytes have passed so far."""
        return self._rules[direction].forwarded

    def cut(self, *, reset: bool = True) -> None:
        """Break every open connection now: by a reset, or by an orderly end."""
        self._do(lambda: self._cut_all(reset))

    def cut_after(self, count: int, direction: Direction, *, reset: bool = True) -> None:
        """Break the connection that carries the `count`-th byte from now, right after that byte. Once."""

        def arm() -> None:
            self._rules[direction].left = count
            self._reset_on_limit = reset

        self._do(arm)

    def stall(self, *directions: Direction) -> None:
        """Accept connections and bytes, and forward nothing."""

        def hold() -> None:
            for each in directions or BOTH:
                self._rules[each].flowing.clear()

        self._do(hold)

    def slow(self, *directions: Direction, delay: float = 0.0, rate: int | None = None) -> None:
        """Let every chunk wait `delay` seconds, and let at most `rate` bytes a second pass."""

        def set_rules() -> None:
            for each in directions or BOTH:
                self._rules[each].delay, self._rules[each].rate = delay, rate

        self._do(set_rules)

    def refuse(self) -> None:
        """Refuse new connections; leave the open ones alone."""
        self._run(self._stop_listening())

    def move(self, host: str, port: int) -> None:
        """Send new connections to another server; leave the open ones alone."""
        self.upstream = (host, port)

    def resume(self) -> None:
        """End every fault that lasts: stalled bytes flow on, new connections are accepted."""
        self._run(self._resume())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=10)

    def _do(self, action: Callable[[], object]) -> None:
        async def act() -> None:
            action()

        self._run(act())

    async def _start(self) -> None:
        self._rules = {direction: _Rules() for direction in BOTH}
        await self._resume()

    async def _resume(self) -> None:
        for rules in self._rules.values():
            rules.flowing.set()
            rules.delay, rules.rate, rules.left = 0.0, None, None
        if self._listener is None:
            self._listener = await asyncio.start_server(self._accept, LOCALHOST, self.port)
            self.port = self._listener.sockets[0].getsockname()[1]

    async def _stop_listening(self) -> None:
        if self._listener is not None:
            # asyncio drops, and leaves open, what it accepted just before its listener is closed.
            for each in self._listener.sockets:
                self._loop.remove_reader(each.fileno())
            await asyncio.sleep(0)
            self._listener.close()
            self._listener = None

    async def _stop(self) -> None:
        await self._stop_listening()
        self._cut_all(reset=True)
        # A connection that was just accepted becomes a task of ours only now: asyncio's own is left to end.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in self._serving:
                task.cancel()
            await asyncio.wait(others)
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0)

    def _accept(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        serving = self._loop.create_task(self._serve(from_client, to_client))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)
        # Also where it was cancelled before it began, or before it had a server.
        serving.add_done_callback(lambda _: to_client.close())
        self._writers.add(to_client)

    async def _serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            from_server, to_server = await asyncio.open_connection(*self.upstream)
        except OSError:
            _break(to_client, reset=True)
            return
        self._writers.add(to_server)
        pair = (to_client, to_server)
        self._pairs.add(pair)
        try:
            await asyncio.gather(
                self._pump(from_client, to_server, Direction.TO_SERVER, pair),
                self._pump(from_server, to_client, Direction.TO_CLIENT, pair),
            )
        except asyncio.CancelledError:
            pass  # The proxy stops. Before Python 3.12 asyncio would log the cancellation as an error.
        finally:
            self._pairs.discard(pair)
            for writer in pair:
                writer.close()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        direction: Direction,
        pair: Pair,
    ) -> None:
        rules = self._rules[direction]
        try:
            while data := await reader.read(rules.chunk()):
                await rules.hold_back(len(data))
                if rules.left is not None and rules.left <= len(data):
                    data, rules.left = data[: rules.left], None
                    await _forward(data, writer, rules)
                    self._cut(pair, self._reset_on_limit)
                    return
                if rules.left is not None:
                    rules.left -= len(data)
                await _forward(data, writer, rules)
            writer.write_eof()
        except OSError:  # one side is gone, so the other has nobody to talk to
            self._cut(pair, reset=True)

    def _cut(self, pair: Pair, reset: bool) -> None:
        self._pairs.discard(pair)
        for writer in pair:
            _break(writer, reset)

    def _cut_all(self, reset: bool) -> None:
        for pair in list(self._pairs):
            self._cut(pair, reset)


async def _forward(data: bytes, writer: asyncio.StreamWriter, rules: _Rules) -> None:
    writer.write(data)
    rules.forwarded += len(data)
    await writer.drain()


def _break(writer: asyncio.StreamWriter, reset: bool) -> None:
    if not reset:
        writer.close()
        return
    connection = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):  # it may be closed already
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
