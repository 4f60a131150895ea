"""Order by key under everything at once: hypothesis looks for a history that breaks it.

Writers commit out of the order of their ids; workers claim, fail, crash, lose claims and come back as zombies; messages
are scheduled, dead, requeued; keys are stuck, blocked, released. After every claim and at the end the rule is checked:
what is sent of a key is the beginning of what the database holds of it, and in the end nothing is left or lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from relay.admin.dead import requeue
from relay.claims import edge
from relay.claims.claim import Claim, LostClaim
from relay.claims.parking import let_due_destinations_go
from relay.claims.shards import ShardClaims
from relay.claims.stuck import let_due_keys_go
from relay.database.connection import Database
from relay.process.store import Store
from sinks.base import DELIVERED, Delivered, Hold, Message, Outcome, Reject, Retry
from tests.harness.ordered import BEHIND, OrderedSink
from tests.servers.given import given

pytestmark = pytest.mark.full

KEYS = st.sampled_from(["a", "a", "b", "c", None])
EXAMPLES = int(given("EXAMPLES") or "12")
STEPS = 80
NUMBERS = st.integers(0, 2)
LIMITS = st.integers(1, 8)
OUTCOMES = st.lists(
    st.sampled_from(
        [DELIVERED, DELIVERED, DELIVERED, Retry("no"), Reject("no"), Hold("sick"), Hold("sick there", "there")]
    ),
    min_size=8,
    max_size=8,
)


@dataclass
class Worker:
    """One worker, and how far it is with its claim."""

    claims: ShardClaims
    claim: Claim | None = None
    outcomes: list[Outcome] | None = None
    ours: bool = True
    """Whether the claim is still its own."""


@dataclass
class World:
    """What all examples of one test share."""

    sink: OrderedSink
    databases: list[Database] = field(default_factory=list)
    connections: list[psycopg.Connection[Any]] = field(default_factory=list)


class OrderMachine(RuleBasedStateMachine):
    """One outbox, three workers, two writers with open transactions, and the upkeep of any relay."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.sink = world.sink
        self.store = Store(world.databases[0])
        self.writers = world.connections[1:]
        self.reader = world.connections[0]
        # Two of one relay, which share what they know of the shards, and one of another relay.
        shared = edge.Edge(self.sink.settings.name, self.sink.settings.shards)
        self.workers = [
            Worker(ShardClaims(database, self.sink.settings, str(number), shared if number < 2 else None))
            for number, database in enumerate(world.databases[1:])
        ]
        self.written: list[list[int]] = [[] for _ in self.writers]
        self.committed: set[int] = set()
        self.delivered: set[int] = set()
        self.query("truncate relay.outbox, relay.claims, relay.stuck_keys, relay.destinations, relay.dead")

    def query(self, text: str, *parameters: Any) -> list[tuple[Any, ...]]:
        cursor = self.reader.execute(text.encode(), parameters or None)
        return cursor.fetchall() if cursor.description else []

    # Writers

    @rule(
        writer=st.integers(0, 1),
        keys=st.lists(KEYS, min_size=1, max_size=6),
        scheduled=st.booleans(),
        then=st.sampled_from(["commit", "commit", "commit", "stay open", "roll back"]),
    )
    def write(self, writer: int, keys: list[str | None], scheduled: bool, then: str) -> None:
        if self.sink.settings.strict and self.written[1 - writer]:
            self.commit(1 - writer)  # this one would wait for it
        columns = {"run_at": "2099-01-01"} if scheduled else {}
        self.written[writer] += self.sink.insert(*keys, on=self.writers[writer], **columns)
        if then == "commit":
            self.commit(writer)
        elif then == "roll back":
            self.writers[writer].rollback()
            self.written[writer] = []

    @rule(writer=st.integers(0, 1))
    def commit(self, writer: int) -> None:
        self.writers[writer].commit()
        self.committed |= set(self.written[writer])
        self.written[writer] = []

    # Workers

    @rule(number=NUMBERS, limit=LIMITS, outcomes=OUTCOMES)
    def work(self, number: int, limit: int, outcomes: list[Outcome]) -> None:
        """The next step: claim, send or settle. A worker whose claim is lost may not know it yet."""
        worker = self.workers[number]
        if worker.claim is None:
            self.claim(worker, limit)
        elif worker.outcomes is None:
            worker.outcomes = self.send(worker.claim.messages, outcomes)
        else:
            self.settle(worker, worker.outcomes)

    @rule(number=NUMBERS, limit=LIMITS, outcomes=OUTCOMES)
    def work_through(self, number: int, limit: int, outcomes: list[Outcome]) -> None:
        """All steps at once."""
        for _ in range(3):
            self.work(number, limit, outcomes)

    def claim(self, worker: Worker, limit: int) -> None:
        worker.claim, worker.outcomes, worker.ours = worker.claims.claim(limit), None, True
        if worker.claim is not None:
            self.check_beginnings(worker.claim)

    def check_beginnings(self, claim: Claim) -> None:
        """Of every key the claim holds the first messages that are due, whatever state they are in."""
        sent: dict[str, list[int]] = {}
        for message in claim.messages:
            if message.key is not None:
                sent.setdefault(message.key, []).append(message.id)
        for key, ids in sent.items():
            there = self.query(
                "select id from relay.outbox where key = %s and (run_at is null or run_at = 'infinity') order by id",
                key,
            )
            assert ids == [row[0] for row in there][: len(ids)], key
        shards = self.query("select unnest(shards) from relay.claims where token = %s", claim.token)
        assert {row[0] for row in shards} == set(claim.shards)

    def send(self, messages: list[Message], drawn: list[Outcome]) -> list[Outcome]:
        stuck: set[str | None] = set()
        outcomes = []
        for message, outcome in zip(messages, drawn, strict=False):
            if message.key in stuck:
                outcome = BEHIND
            elif isinstance(outcome, Delivered):
                self.delivered.add(message.id)
            elif message.key is not None:
                stuck.add(message.key)
            outcomes.append(outcome)
        return outcomes

    def settle(self, worker: Worker, outcomes: list[Outcome]) -> None:
        assert worker.claim
        verdict = worker.claims.judge(worker.claim, outcomes)
        self.end(worker, lambda claim: worker.claims.settle(claim, verdict))

    def end(self, worker: Worker, write: Callable[[Claim], None]) -> None:
        claim, worker.claim = worker.claim, None
        if claim is None:
            return
        if worker.ours:
            write(claim)
            return
        before = self.query(STATE)
        with pytest.raises(LostClaim):
            write(claim)
        assert self.query(STATE) == before

    @rule(
        number=NUMBERS,
        how=st.sampled_from(["released", "unknown", "lost", "crashed", "crashed, late"]),
    )
    def trouble(self, number: int, how: str) -> None:
        worker = self.workers[number]
        if worker.claim is None:
            return  # No precondition: one on the database's state could not be replayed.
        if how in ("released", "unknown"):
            unknown = how == "unknown"
            self.end(worker, lambda claim: worker.claims.release(claim, unknown=unknown, reason="no answer"))
            return
        self.query("update relay.claims set locked_until = now() - interval '1 s' where token = %s", worker.claim.token)
        if how != "crashed, late":
            while self.store.reap():
                worker.ours = False
        if how.startswith("crashed"):
            worker.claim = None

    # Upkeep and time

    @rule(what=st.sampled_from(["promote", "let go", "probe"]), many=st.booleans())
    def upkeep(self, what: str, many: bool) -> None:
        number = 100 if many else 1
        while self.store.reap():
            pass
        if what == "promote":
            self.query("update relay.outbox set run_at = now() where run_at > now() and run_at < 'infinity'")
            self.store.promote(number)
        elif what == "probe":
            self.query("update relay.destinations set retry_at = now()")
            let_due_destinations_go(self.store.database, number)
        else:
            self.query("update relay.stuck_keys set retry_at = now() where retry_at is not null")
            let_due_keys_go(self.store.database, number)

    # A person

    @rule(what=st.sampled_from(["requeue one", "requeue all", "release", "release", "pause"]))
    def person(self, what: str) -> None:
        if what.startswith("requeue"):
            ids = [row[0] for row in self.query("select id from relay.dead order by random()")]
            requeue(self.store.database, ids[:1] if what == "requeue one" else ids)
        elif what == "release":
            self.query("update relay.stuck_keys set retry_at = now() where retry_at is null")
        else:
            self.query("update relay.sinks set paused_at = now(), paused_reason = 'test'")
            assert not any(worker.claims.claim(8) for worker in self.workers if worker.claim is None)
            self.query("update relay.sinks set paused_at = null, paused_reason = null")

    # What always holds

    @invariant()
    def nothing_waits_unseen(self) -> None:
        assert not self.query(
            "select 1 from relay.outbox o left join relay.stuck_keys k"
            "    on k.sink = o.sink and k.key_hash = relay.hash_of(o.key, null)"
            " where o.run_at = 'infinity' and o.destination is null and (k.key is null or o.id <= k.upto)"
        )
        assert not self.query(
            "select 1 from (select sink, destination from relay.outbox where run_at = 'infinity'"
            "                union all select sink, destination from relay.stuck_keys) waits"
            " where destination is not null"
            "   and (sink, destination) not in (select sink, destination from relay.destinations)"
        )
        assert not self.query("select 1 from relay.outbox where claim_token is not null")

    def teardown(self) -> None:
        """Everything heals; then nothing may be left, and nothing lost."""
        for number in range(len(self.writers)):
            self.commit(number)
        for worker in self.workers:
            worker.claim = None
        self.query("update relay.claims set locked_until = now() - interval '1 s'")
        for _ in range(200):
            self.person("release")
            for what in ("promote", "let go", "probe"):
                self.upkeep(what, many=True)
            for number in range(len(self.workers)):
                self.work_through(number, 8, [DELIVERED] * 8)
            if not self.query(STATE):
                break
        assert self.query(STATE) == []
        dead = {row[0] for row in self.query("select id from relay.dead")}
        assert self.committed <= self.delivered | dead
        assert self.delivered | dead <= self.committed


STATE = """
  select 'outbox', o::text from relay.outbox o
   union all select 'claims', c::text from relay.claims c
   union all select 'stuck', k::text from relay.stuck_keys k
   union all select 'destinations', d::text from relay.destinations d
   order by 1, 2
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "keys",
    [
        {"after_dead": "skip", "shards": 4},
        {"after_dead": "block", "shards": 4, "max_attempts": 2},
        {"after_dead": "skip", "shards": 2, "strict": True},
    ],
    ids=lambda keys: "-".join(map(str, keys.values())),
)
def test_every_history_is_legal(
    ordered: Callable[..., OrderedSink], keys: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge, "EVERY_S", 0.0)
    monkeypatch.setattr(edge, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(edge, "SHARE", 1e9)
    world = World(ordered(**keys))
    world.databases = [Database(world.sink.url) for _ in range(4)]
    world.connections = [psycopg.connect(world.sink.url, autocommit=number == 0) for number in range(3)]
    try:
        run_state_machine_as_test(
            lambda: OrderMachine(world),  # type: ignore[arg-type]
            settings=settings(
                max_examples=EXAMPLES,
                stateful_step_count=STEPS,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                print_blob=True,
            ),
        )
    finally:
        for database in world.databases:
            database.close()
        for connection in world.connections:
            connection.close()
