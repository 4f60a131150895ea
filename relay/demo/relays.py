"""The demo's relays: the real command, in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from relay.database.connection import Database
from relay.demo.processes import child
from relay.errors import RelayError
from relay.statements import statement

RELAY = (sys.executable, "-m", "relay")
CAUGHT_S = 5.0
LOG_LINES = 15


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """This process's own, without anything that would configure the relay or boto3 differently."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("RELAY_", "AWS_"))}
    local = "127.0.0.1"
    return {**ours, **variables, "NO_PROXY": local, "no_proxy": local}


def command(folder: Path, variables: Mapping[str, str], *arguments: str) -> None:
    """Run `relay …` to its end in the folder that has relay.toml.

    Raises:
        RelayError: it failed.
    """
    done = subprocess.run(
        [*RELAY, *arguments],
        cwd=folder,
        env=environment(variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RelayError(f"relay {' '.join(arguments)} ended with {done.returncode}: {done.stderr.strip()}")


@dataclass(frozen=True)
class Relay:
    """A `relay run`."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def check(self) -> None:
        """
        Raises:
            RelayError: it is not running any more; with the end of its log.
        """
        code = self.process.poll()
        if code is not None:
            lines = self.log.read_text(errors="replace").splitlines()[-LOG_LINES:]
            raise RelayError("\n".join([f"{self.name} ended with {code}; its log ends:", *lines]))

    def kill_while_holding(self, sinks: set[str], database: Database) -> dict[str, int]:
        """SIGKILL it in the middle of a batch for one of these sinks, unless it holds none for long.

        Returns:
            How many messages of each sink it left behind, claimed.
        """
        deadline = time.monotonic() + CAUGHT_S
        while True:
            # Stopped in mid-air first: what it holds then is what it holds when it dies.
            self.process.send_signal(signal.SIGSTOP)
            held = dict(database.query(statement("demo/held"), {"pid": str(self.process.pid)}))
            if held.keys() & sinks or time.monotonic() > deadline:
                self.process.kill()
                self.process.wait()
                return held
            self.process.send_signal(signal.SIGCONT)
            time.sleep(0.003)


@contextmanager
def relay(name: str, folder: Path, variables: Mapping[str, str], *arguments: str) -> Iterator[Relay]:
    """`relay run …` for the length of a `with` block."""
    log = folder / f"{name.replace(' ', '-')}.log"
    with child(
        [*RELAY, "--config", str(folder / "relay.toml"), "run", *arguments], log, environment(variables)
    ) as process:
        yield Relay(name, process, log)
