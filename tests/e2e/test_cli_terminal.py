"""What a person sees who has a terminal: tables and bars that are drawn, and a terminal left as it was."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tests.command import Command
from tests.servers.base import wait_until

SHOW_CURSOR = "\x1b[?25h"


class Terminal:
    """A process on a terminal of its own, and all that it wrote."""

    def __init__(self, process: subprocess.Popen[bytes], screen: int) -> None:
        self.process = process
        self.text = ""
        self._screen = screen

    def write(self, text: str) -> None:
        os.write(self._screen, text.encode())

    def read(self) -> bool:
        """Take what it has written; False once it has ended and all is read."""
        try:
            data = os.read(self._screen, 65536)
        except OSError:  # how Linux says that nobody has the other side open any more
            return False
        self.text += data.decode(errors="replace")
        return bool(data)

    def read_until(self, text: str) -> None:
        while text not in self.text:
            assert self.read(), f"it ended without {text!r}: {self.text!r}"

    def read_to_the_end(self) -> int:
        while self.read():
            pass
        return self.process.wait(timeout=10)


@contextmanager
def on_a_terminal(relay: Command, *args: str) -> Iterator[Terminal]:
    screen, other_side = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "relay", *args],
        cwd=relay.folder,
        env={**os.environ, "RELAY_DATABASE_URL": relay.url, "TERM": "xterm", "COLUMNS": "120"},
        stdin=other_side,
        stdout=other_side,
        stderr=other_side,
        start_new_session=True,
    )
    os.close(other_side)
    try:
        yield Terminal(process, screen)
    finally:
        process.kill()
        process.wait()
        os.close(screen)


def test_watching_draws_a_table_until_interrupted(relay: Command) -> None:
    with on_a_terminal(relay, "status", "--watch", "--interval", "100ms") as terminal:
        terminal.read_until("GROWTH")
        terminal.read_until("+0/s")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.read_to_the_end() == 0
        assert terminal.text.rfind(SHOW_CURSOR) > terminal.text.rfind("GROWTH")
        assert "Traceback" not in terminal.text


def test_a_long_requeue_draws_a_bar_and_then_says_how_many(relay: Command) -> None:
    with psycopg.connect(relay.url, autocommit=True) as conn:
        conn.execute(
            "insert into relay.dead (id, sink, shard, kind, payload, message_id, attempts, error, created_at) "
            "select g, 'emails', 0, 'Send', '{}', gen_random_uuid(), 20, 'no', now() from generate_series(1, 5000) g"
        )
    with on_a_terminal(relay, "dead", "requeue", "--all") as terminal:
        terminal.read_until("[y/N]")
        terminal.write("y\n")
        assert terminal.read_to_the_end() == 0
        assert "━" in terminal.text
        assert "requeued 5,000 messages" in terminal.text
        assert SHOW_CURSOR in terminal.text


def test_interrupted_half_way_it_keeps_what_is_done_and_can_go_on(relay: Command) -> None:
    with psycopg.connect(relay.url, autocommit=True) as conn:
        conn.execute(
            "insert into relay.dead (id, sink, shard, kind, payload, message_id, attempts, error, created_at) "
            "select g, 'emails', 0, 'Send', '{}', gen_random_uuid(), 20, 'no', now() from generate_series(1, 2500) g"
        )
        with conn.transaction():
            # The third batch has to wait for this row.
            conn.execute("select from relay.dead where id = 2500 for update")
            with on_a_terminal(relay, "dead", "requeue", "--all", "--yes") as terminal:
                done = "select count(*) from relay.outbox"
                wait_until(lambda: conn.execute(done).fetchone() == (2000,), timeout=30, what="two batches being done")
                terminal.process.send_signal(signal.SIGINT)
                assert terminal.read_to_the_end() == 130
                assert "Interrupted." in terminal.text
                assert "Traceback" not in terminal.text
        assert relay("dead", "requeue", "--all", "--yes") == "requeued 500 messages\n"
        assert conn.execute("select count(*), count(distinct id) from relay.outbox").fetchone() == (2500, 2500)
