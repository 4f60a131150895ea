"""Every hot statement reads by an index or by place, and no more than it needs, whatever the statistics say."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from relay.admin.apply import apply
from relay.admin.status import read_status
from relay.claims.claim import Claim
from relay.claims.parking import count_waiting, let_due_destinations_go
from relay.claims.rows import RowClaims
from relay.claims.shards import ShardClaims
from relay.claims.stuck import let_due_keys_go
from relay.config.settings import Settings, load
from relay.database.connection import Database
from relay.process.late_routes import LateRoutes
from relay.process.store import Presence, Said, Store
from relay.statements import statement
from sinks.base import ARRIVED, DELIVERED, Hold, Outcome, Reject, Retry
from tests.harness.plans import ExplainedDatabase, Plan
from tests.servers.postgres import every_postgres

BATCH = 50
CONFIGURATION = f"""
[sinks.rows]
type = "memory"
batch_messages = {BATCH}

[sinks.keys]
type = "memory"
order = "key"
shards = 16
batch_messages = {BATCH}

[[routes]]
kind = "*"
sink = "rows"
"""

READY = """
insert into relay.outbox (sink, kind, key, payload)
select case when n % 2 = 0 then 'rows' else 'keys' end, 'made', 'key ' || n % 500, to_json(repeat('x', 100))
  from generate_series(1, 50000) n
"""
OTHERS = """
insert into relay.outbox (sink, shard, kind, key, payload, run_at)
select 'rows', 0, 'later', null, '{}'::json, now() + interval '1 h' + n * interval '1s' from generate_series(1, 10000) n
union all
select 'keys', 3, 'waiting', 'stuck', '{}'::json, 'infinity' from generate_series(1, 5000) n
"""
DUE = "update relay.outbox set run_at = run_at - interval '2 h' where kind = 'later' and id % 2 = 0"
STUCK = """
insert into relay.stuck_keys (sink, key_hash, key, upto, retry_at)
values ('keys', relay.hash_of('stuck', null), 'stuck', 0, now())
"""
PENDING_ELSEWHERE = """
insert into relay.outbox (sink, shard, kind, payload, run_at)
select 'gone', n % 7, 'made', '{}'::json, now() + interval '1 day' from generate_series(1, 30000) n
union all
select 'rows', 0, 'made', '{}', null::timestamptz from generate_series(1, 300) n
"""

SUSPECT = """
update relay.outbox set deaths = 2
 where id in (select min(id) from relay.outbox where sink = 'keys' and run_at is null group by shard)
"""

HOT = {
    *("claim_rows", "delete_delivered", "lock_rows", "settle_retry", "settle_release", "settle_dead"),
    *(
        "find_shards",
        "lock_shards",
        "claim_shards",
        "read_shards",
        "read_small_shards",
        "delete_delivered_shards",
        "edges",
        "writers",
    ),
    *("stick_keys", "wait_messages", "lock_stuck_keys", "lock_due_keys", "lock_waiting", "let_go"),
    *("park", "hold", "lock_due", "lock_parked", "unpark", "lock_keys", "move", "lock", "adopt"),
    *("lock_expired_claim", "reap_rows", "end_claim", "lock_claim", "extend_claims"),
    *(
        "promote",
        "next_due",
        "is_drained",
        "say_alive",
        "rivals",
        "status",
        "known_sinks",
        "say_goodbye",
    ),
    *("read_head", "read_size", "read_message", "note_arrived"),
    "unrouted_part",
}
COUNTS_ALL = {"status"}
"""Statements that count everything; they may do so by an index only."""
MOST_ROWS = 20 * BATCH
PAGES = 300
PAGES_A_ROW = 30
"""A row that leaves the ready index and comes back to it has an entry in each index."""


@pytest.fixture
def settings(relay_database_url: str, tmp_path: Path) -> Settings:
    file = tmp_path / "relay.toml"
    file.write_text(CONFIGURATION)
    settings = load(file, {"RELAY_DATABASE_URL": relay_database_url})
    with closing(Database(relay_database_url)) as database:
        apply(database, settings)
    return settings


def run(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        for statement in statements:
            conn.execute(statement.encode())


def fill(url: str, statistics: str) -> None:
    """A big queue, and statistics of one kind."""
    run(url, "alter table relay.outbox set (autovacuum_enabled = off)")
    if statistics == "of an empty table":
        run(url, "analyze relay.outbox")
    if statistics == "of another load":
        run(url, PENDING_ELSEWHERE, "analyze", "delete from relay.outbox")
    run(url, OTHERS, READY, DUE, STUCK)
    if statistics == "fresh":
        run(url, "analyze")


@every_postgres
@pytest.mark.parametrize("plan", ["custom", "generic"])
@pytest.mark.parametrize("statistics", ["fresh", "none", "of an empty table", "of another load"])
def test_no_statement_reads_more_than_it_needs(
    relay_database_url: str, settings: Settings, statistics: str, plan: str
) -> None:
    fill(relay_database_url, statistics)
    with closing(ExplainedDatabase(relay_database_url)) as database:
        database.generic = plan == "generic"
        walk(database, settings)
    check_ways(database.plans)
    check_amounts(database.plans)


@every_postgres
@pytest.mark.parametrize("statistics", ["fresh", "none", "of an empty table", "of another load"])
def test_nor_through_a_pooler_where_nothing_can_be_set(
    relay_database_url: str, settings: Settings, statistics: str
) -> None:
    fill(relay_database_url, statistics)
    with closing(ExplainedDatabase(relay_database_url, pooled=True)) as database:
        walk(database, settings)
    check_amounts(database.plans)


def check_ways(plans: list[Plan]) -> None:
    assert {(plan.name, *plan.slow_nodes("outbox")) for plan in plans if plan.slow_nodes("outbox")} == set()


def check_amounts(plans: list[Plan]) -> None:
    assert {plan.name for plan in plans} >= HOT
    bounded = [plan for plan in plans if plan.name not in COUNTS_ALL]
    assert {(plan.name, plan.most_rows) for plan in bounded if plan.most_rows > MOST_ROWS} == set()
    costly = [plan for plan in bounded if plan.most_pages > PAGES + PAGES_A_ROW * plan.most_rows]
    assert {(plan.name, plan.most_pages, plan.most_rows) for plan in costly} == set()


def walk(database: Database, settings: Settings) -> None:
    """Whatever a relay asks of its database, by the relay's own code."""
    store = Store(database)
    LateRoutes(database).route()
    rows = RowClaims(database, settings.sinks["rows"], "a worker")
    shards = ShardClaims(database, settings.sinks["keys"], "a worker")
    outcomes: list[Outcome] = [Retry("busy"), Reject("too large"), Hold("missing", "a topic"), ARRIVED]
    for claims in (rows, shards):
        for moved in (False, True):
            claim = taken(claims)
            if moved:
                run(settings.database.url, f"update relay.outbox set key = key where id = {claim.ids[-1]}")
            said = outcomes + [DELIVERED] * (len(claim.messages) - len(outcomes))
            claims.settle(claim, claims.judge(claim, said))
        claims.release(taken(claims), unknown=True, reason="no answer")
        claims.abandon(taken(claims).token)
        claim = taken(claims)
        assert store.extend_claims([claim.token], 30.0)[claim.token] is True
        expire(settings.database.url, claim.token)
        while store.reap():
            pass
    note_destinations(database, settings, rows, shards)
    run(settings.database.url, SUSPECT)
    shards.release(taken(shards), unknown=False, reason=None)
    note_stuck(database, shards)
    assert store.promote(10 * BATCH) == 10 * BATCH
    store.next_due()
    store.is_drained(["rows", "keys"])
    store.known_sinks()
    store.say_alive(Presence("a worker", "host", "1", 30.0, {}, {"rows": Said("there", None)}))
    assert store.rivals("another")
    assert {sink.name for sink in read_status(database).sinks} >= {"rows", "keys"}
    store.say_goodbye("a worker")


def taken(claims: RowClaims | ShardClaims) -> Claim:
    claim = claims.claim(BATCH)
    assert claim
    if claim.unread is not None:
        claims.read(claim, 2**20)
    return claim


def expire(url: str, token: UUID) -> None:
    run(url, f"update relay.claims set locked_until = now() - interval '1 s' where token = '{token}'")


def note_destinations(database: Database, settings: Settings, rows: RowClaims, shards: ShardClaims) -> None:
    """A probe of each destination is let go and delivered, and others follow."""
    database.run(statement("destinations/adopt"))
    run(settings.database.url, "update relay.destinations set retry_at = now()")
    assert let_due_destinations_go(database, 50) > 0
    for claims in (rows, shards):
        for _ in range(20):
            claim = taken(claims)
            claims.settle(claim, claims.judge(claim, [DELIVERED] * len(claim.messages)))
            if claim.probes:
                break
    assert count_waiting(database) is not None


def note_stuck(database: Database, shards: ShardClaims) -> None:
    """Deliver what was let go of a stuck key, so that the next of it is let go; and find no shard for a claim."""
    assert let_due_keys_go(database) > 0
    for _ in range(20):
        claim = taken(shards)
        shards.settle(claim, shards.judge(claim, [DELIVERED] * len(claim.messages)))
        if "stuck" in claim.stuck:
            break
