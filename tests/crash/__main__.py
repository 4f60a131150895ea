"""Three relays under load; kills, freezes, slow and cut connections to the brokers and to the database; then the count.

Every message goes to every sink. A part of the transactions is rolled back. A key has one writer, so its messages'
numbers rise with their ids.
"""

from __future__ import annotations

import argparse
import random
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.report import Report
from tests.crash import faults
from tests.crash.brokers import ALL, Broker, Copy, brokers
from tests.crash.load import Writers
from tests.crash.relays import LEASE_S, Launch, Relays
from tests.servers.base import wait_until
from tests.servers.postgres import migrate, new_cluster, new_database
from tests.servers.proxy import FaultProxy

RELAYS = 3
HEAD = """
[log]
format = "json"
"""

COMMON = """
lease = "{lease}s"
send_timeout = "{send}s"
backoff = {{ base = "100ms", max = "1s" }}
max_attempts = 10000
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.crash")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="repeats the same choices")
    parser.add_argument("--sinks", default=",".join(ALL), help="comma-separated: " + ", ".join(ALL))
    parser.add_argument("--rate", type=int, default=100, help="messages written a second")
    parser.add_argument("--keep", action="store_true", help="leave benchmarks/results alone")
    asked = parser.parse_args()
    print(f"crash test: {asked.kills} kills, seed {asked.seed}", flush=True)
    report = Report("crash", module="tests.crash", save=not asked.keep)
    with brokers(asked.sinks.split(",")) as sinks, database() as url, tempfile.TemporaryDirectory() as folder:
        relays, written = run(asked.kills, asked.rate, random.Random(asked.seed), sinks, url, Path(folder))
        report.add("kills", asked.kills, "relays", versus=f"seed {asked.seed}")
        # Were it fewer, the test would not show what it is for.
        report.add("killed while holding messages", relays.killed_holding, "relays", at_least=asked.kills / 3)
        report.add("frozen while holding messages", relays.frozen_holding, "relays")
        report.add("committed", len(written), "messages", versus=f"to each of {len(sinks)} sinks")
        for sink in sinks:
            count(report, sink, written)
    report.finish()


@contextmanager
def database() -> Iterator[str]:
    with new_cluster() as cluster, cluster.run(), new_database(cluster.url()) as url:
        migrate(url)
        yield url


def run(
    kills: int, rate: int, chance: random.Random, sinks: list[Broker], url: str, folder: Path
) -> tuple[Relays, set[int]]:
    """Go through it all; the relays, and the numbers of the messages that were committed."""
    routes = "".join(f'[[routes]]\nkind = "crash"\nsink = "{sink.name}"\n' for sink in sinks)
    sections = (sink.configuration() + COMMON.format(send=sink.send_s, lease=LEASE_S * sink.send_s) for sink in sinks)
    text = HEAD + "".join(sections) + routes
    (folder / "relay.toml").write_text(text, encoding="utf-8")
    with (
        FaultProxy.before(url) as database,
        Relays(url, launches(folder / "relay.toml", database.url(url)), chance) as relays,
        Writers(url, rate, chance.random()) as writers,
    ):
        for number in range(kills):
            disturb(relays, database, sinks, chance)
            relays.kill()
            if (number + 1) % 10 == 0:
                print(f"{number + 1} kills, {len(writers.committed)} messages committed", flush=True)
        writers.stop()
        relays.thaw()
        for sink in sinks:
            sink.recover()
        database.resume()
        print("draining", flush=True)
        wait_until(lambda: relays.drained() or relays.keep_alive(), timeout=300, interval=0.5)
        return relays, writers.committed


def launches(file: Path, url: str) -> list[Launch]:
    return [Launch(file, {"RELAY_DATABASE_URL": url})] * RELAYS


def disturb(relays: Relays, database: FaultProxy, sinks: list[Broker], chance: random.Random) -> None:
    """What happens between two kills."""
    until = time.monotonic() + chance.uniform(0.3, 1.5)
    while time.monotonic() < until:
        time.sleep(chance.uniform(0.02, 0.3))
        if chance.random() < 0.25:
            faults.disturb(database, chance)
        else:
            chance.choice(sinks).disturb(chance)
        if chance.random() < 0.06:
            relays.freeze()


def count(report: Report, sink: Broker, written: set[int]) -> None:
    """Compare what a broker holds with what was committed."""
    held = sink.held()
    copies = Counter(copy.number for copy in held)
    second = sum(copies.values()) - len(copies)
    report.add(f"{sink.name}: lost", len(written - copies.keys()), "messages", at_most=0)
    report.add(f"{sink.name}: never committed", len(copies.keys() - written), "messages", at_most=0)
    report.add(f"{sink.name}: second copies", second, "messages", at_most=0 if sink.exact else None)
    if sink.ordered:
        report.add(f"{sink.name}: out of order", out_of_order(held), "messages", at_most=0)


def out_of_order(held: list[Copy]) -> int:
    """How many first copies come after a later message of their key."""
    seen: set[int] = set()
    highest: dict[str, int] = {}
    wrong = 0
    for copy in held:
        if copy.number not in seen:
            seen.add(copy.number)
            wrong += copy.number < highest.get(copy.key, -1)
            highest[copy.key] = max(copy.number, highest.get(copy.key, -1))
    return wrong


if __name__ == "__main__":
    main()
