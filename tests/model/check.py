"""What must hold in the end, whatever happened."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tests.crash.brokers import Copy
from tests.model import audit
from tests.model.audit import Committed
from tests.model.sinks import Destination
from tests.model.world import World

INVARIANTS = (
    "lost", "ghosts", "out of order", "second copies", "dead without reason", "stranded", "status untrue", "crashed",
)  # fmt: skip
SHOWN = 20
FORGOTTEN_S = 40.0


@dataclass(frozen=True)
class Violation:
    """One invariant that does not hold."""

    invariant: str
    where: str
    what: tuple[object, ...]
    """Messages (number, id, key), or texts."""

    def __str__(self) -> str:
        more = f" and {len(self.what) - SHOWN} more" if len(self.what) > SHOWN else ""
        shown = "\n    ".join(map(str, self.what[:SHOWN]))
        return f"{self.invariant}, {self.where}: {len(self.what)}\n    {shown}{more}"


def check(world: World, drained: bool) -> Iterator[Violation]:
    """Look at everything. The relays have stopped writing, or never will."""
    committed = audit.read(world.url)
    if not drained:
        yield from _stranded(world)
    for sink in world.sinks:
        yield from _check_sink(world, sink, committed[sink.name])
    yield from _status(world)
    if world.untrue:
        yield Violation("status untrue", "operators", tuple(world.untrue))
    yield from _crashes(world)


def _check_sink(world: World, sink: Destination, committed: Committed) -> Iterator[Violation]:
    held = list(sink.held())
    copies = Counter(copy.number for copy in held)
    left = {number for (number,) in world.sql(LEFT, sink.name, sink.name)}
    dead = dict(world.sql("select (payload ->> 0)::bigint, error from relay.dead where sink = %s", sink.name))

    def found(invariant: str, numbers: set[int], note: dict[int, str] | None = None) -> Iterator[Violation]:
        if numbers:
            what = ((number, f"id {committed.ids.get(number)}", (note or {}).get(number)) for number in sorted(numbers))
            yield Violation(invariant, sink.name, tuple(what))

    yield from found("lost", committed.ids.keys() - copies.keys() - left - world.discarded(sink.name, committed.died))
    yield from found("ghosts", copies.keys() - committed.ids.keys())
    if not sink.may_die:
        yield from found("dead without reason", {*dead}, dead)
    if sink.exact:
        yield from found("second copies", {number for number, count in copies.items() if count > 1})
    if sink.ordered:
        yield from found(
            "out of order", set(_overtaken(held, committed, sink.blocks and not world.released(sink.name)))
        )


LEFT = """
select (payload ->> 0)::bigint from relay.outbox where sink = %s
union all select (payload ->> 0)::bigint from relay.dead where sink = %s
"""


def _overtaken(held: list[Copy], committed: Committed, dead_too: bool) -> Iterator[int]:
    """First copies that come after a later message of their key.

    Args:
        dead_too: also those that were dead at some time, as nothing of their key was to go on without them.
    """
    passed_over = committed.unordered | (set() if dead_too else committed.died)
    seen: set[int] = set()
    highest: dict[str, int] = {}
    for number, key in held:
        id = committed.ids.get(number)
        if number in seen or number in passed_over or not key or id is None:
            continue
        seen.add(number)
        if id < highest.get(key, 0):
            yield number
        highest[key] = max(id, highest.get(key, 0))


def _stranded(world: World) -> Iterator[Violation]:
    rows = [
        *world.sql(
            "select 'message', sink, shard, id, key, run_at, due_at, attempts, claim_token, prior_tokens, last_error"
            " from relay.outbox order by id"
        ),
        *world.sql("select 'claim', token, sink, shards, worker, claimed_at, locked_until, ids from relay.claims"),
        *world.sql("select 'stuck key', sink, key, upto, retry_at, reason from relay.stuck_keys"),
        *world.sql("select 'sink', name, paused_reason, resharding from relay.sinks"),
    ]
    yield Violation("stranded", "database", tuple(" ".join(map(str, row)) for row in rows))


def _status(world: World) -> Iterator[Violation]:
    """Compare what it says with the tables. A relay that was killed is counted for another half a minute."""
    deadline = time.monotonic() + FORGOTTEN_S
    while wrong := list(_untrue(world)):
        if time.monotonic() > deadline:
            yield Violation("status untrue", "relay status", tuple(wrong))
            return
        time.sleep(2)


def _untrue(world: World) -> Iterator[str]:
    done = world.command("status", "--json")
    if done.returncode:
        yield done.stderr
        return
    said = json.loads(done.stdout)["sinks"]
    for name, dead, live, paused in world.sql(
        "select name, (select count(*) from relay.dead d where d.sink = s.name),"
        " (select count(*) from relay.outbox o where o.sink = s.name), paused_reason from relay.sinks s"
    ):
        has = said.get(name, {})
        if has.get("dead") != dead:
            yield f"{name}: {dead} are dead, it says {has}"
        if sum(has.get(part, 0) for part in ("due", "scheduled", "claimed")) != live:
            yield f"{name}: {live} are live, it says {has}"
        if has.get("paused") != paused:
            yield f"{name}: paused {paused!r}, it says {has}"
        if has.get("circuit") == "open" and not live:
            yield f"{name}: nothing is left, and its circuit is open: {has}"


def _crashes(world: World) -> Iterator[Violation]:
    """Relays that ended by themselves, or did not end when asked to; tracebacks anywhere."""
    wrong = [
        f"{log.name}: a relay ended by itself with {code}" for log, code in world.relays.ended if not world.resharded
    ]
    for log, relay in world.relays.left:
        # The signal itself: it came before Python was up.
        if relay.poll() not in (0, -signal.SIGTERM):
            wrong.append(f"{log.name}: a relay that got SIGTERM ended with {relay.poll()} (none: not at all)")
    for launch in world.relays.launches:
        lines = launch.log.read_text(errors="replace").splitlines()
        wrong += [
            f"{launch.log.name}: {line[:200]} … {line[-1500:]}"
            for line in lines
            if "Traceback" in line or '"sink failed"' in line
        ]
    for done in world.answers:
        if "Traceback" in done.stderr or done.returncode not in (0, 1, 3):
            wrong.append(f"{done.args[3:]}: {done.returncode}, {done.stderr[-600:]}")
    if wrong:
        yield Violation("crashed", "processes", tuple(wrong))
