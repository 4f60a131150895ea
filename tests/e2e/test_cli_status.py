"""`relay status` as a person or a monitor runs it."""

from __future__ import annotations

import json
import re
import select
import signal

import pytest
from psycopg import Connection

from tests.command import Command

QUIET = {
    "due": 0,
    "scheduled": 0,
    "claimed": 0,
    "dead": 0,
    "oldest_due_seconds": None,
    "paused": None,
    "circuit": "unknown",
}

SEEN = "insert into relay.relays (worker, seen_at, circuits) values (%s, clock_timestamp() - %s::interval, %s)"


def test_nothing_waits(relay: Command) -> None:
    assert relay.json("status") == {"sinks": {"emails": QUIET, "orders": QUIET}, "unrouted": 0}
    assert relay.json("status", "--check")["unrouted"] == 0


def test_each_message_is_counted_once(relay: Command, conn: Connection) -> None:
    conn.execute(
        "insert into relay.outbox (kind, key, payload, run_at, created_at) "
        "select case when g % 2 = 0 then 'Send' else 'order.x' end, 'k' || g, '{}', "
        "       case when g <= 20 then now() + '1h'::interval end, now() - g * '1s'::interval "
        "from generate_series(1, 100) g"
    )
    conn.execute("insert into relay.outbox (kind, payload) values ('nothing.matches', '{}'), ('nothing.else', '{}')")
    # Four rows of one sink are claimed one by one, the oldest among them; a shard of the other as a whole.
    conn.execute(
        "with oldest as (select id from relay.outbox where sink = 'emails' and run_at is null "
        "                 order by created_at limit 4), "
        "     marked as (update relay.outbox set claim_token = '11111111-1111-1111-1111-111111111111' "
        "                 where id in (select id from oldest) returning id) "
        "insert into relay.claims (token, sink, worker, claimed_at, locked_until, ids) "
        "select '11111111-1111-1111-1111-111111111111', 'emails', 'w', now(), now() + '1m'::interval, array_agg(id) "
        "from marked"
    )
    conn.execute(
        "insert into relay.claims (token, sink, shards, counts, worker, claimed_at, locked_until, ids) "
        "select gen_random_uuid(), 'orders', array_agg(shard), '{1}', 'w', now(), now() + '1m'::interval, "
        "array_agg(id) "
        "from (select * from relay.outbox where sink = 'orders' and run_at is null order by created_at limit 1) x"
    )
    conn.execute(
        "insert into relay.dead (id, sink, shard, kind, payload, message_id, attempts, error, created_at) "
        "select -g, 'emails', 0, 'Send', '{}', gen_random_uuid(), 20, 'no', now() from generate_series(1, 3) g"
    )
    conn.execute(SEEN, ["a", "1 second", json.dumps({"orders": "connection refused"})])
    conn.execute(SEEN, ["b", "1 hour", json.dumps({"emails": "said long ago"})])
    conn.execute("update relay.sinks set paused_at = now(), paused_reason = 'moving' where name = 'emails'")

    status = relay.json("status")
    assert status["unrouted"] == 2
    ages = {name: sink.pop("oldest_due_seconds") for name, sink in status["sinks"].items()}
    assert status["sinks"] == {
        "emails": {"due": 36, "scheduled": 10, "claimed": 4, "dead": 3, "paused": "moving", "circuit": "closed"},
        "orders": {"due": 39, "scheduled": 10, "claimed": 1, "dead": 0, "paused": None, "circuit": "open"},
    }
    # Written 100, 98, 96, 94 seconds ago are claimed; so is the one written 99 seconds ago.
    assert 92 <= ages["emails"] < 92 + 60
    assert 97 <= ages["orders"] < 97 + 60

    printed = relay("status")
    assert re.search(r"^emails +36 +10 +4 +3 +\d+\.\ds +moving +closed$", printed, re.MULTILINE)
    assert "open: connection refused" in printed
    assert "1 relay, 2 messages without a route" in printed
    assert "\x1b" not in printed


def test_the_age_counts_from_when_a_message_was_due(relay: Command, conn: Connection) -> None:
    conn.execute(
        "insert into relay.outbox (kind, payload, created_at, run_at) values "
        "('Send', '1', now() - '10h'::interval, now() + '10h'::interval), ('Send', '2', now() - '9h'::interval, null)"
    )
    conn.execute("update relay.outbox set due_at = clock_timestamp() where payload::text = '2'")
    assert relay.json("status")["sinks"]["emails"]["oldest_due_seconds"] < 60
    conn.execute("delete from relay.outbox where payload::text = '2'")
    assert relay.json("status")["sinks"]["emails"] == {**QUIET, "scheduled": 1}


def test_a_sink_that_only_messages_name_is_flagged(relay: Command, conn: Connection) -> None:
    conn.execute("insert into relay.outbox (sink, kind, payload) values ('elsewhere', 'x', '{}')")
    elsewhere = relay.json("status")["sinks"]["elsewhere"]
    assert elsewhere["unknown"] is True
    assert elsewhere["due"] == 1
    assert "elsewhere (not configured)" in relay("status")


CHECKS = [
    ("insert into relay.outbox (kind, payload) values ('nothing.matches', '{}')", "messages that no route matches: 1"),
    ("insert into relay.outbox (sink, kind, payload) values ('elsewhere', 'x', '{}')", "elsewhere"),
    ("insert into relay.relays (worker, circuits) values ('b', '{\"emails\": \"refused\"}')", "is unwell: refused"),
    (
        "insert into relay.dead (id, sink, shard, kind, payload, message_id, attempts, error, created_at) "
        "values (1, 'emails', 0, 'Send', '{}', gen_random_uuid(), 20, 'no', now())",
        "dead messages: 1",
    ),
    (
        "with gone as (delete from relay.relays) insert into relay.outbox (kind, payload) values ('Send', '{}')",
        "no relay was seen",
    ),
    (
        "insert into relay.outbox (kind, payload, created_at) values ('Send', '{}', now() - '2m'::interval)",
        "is due for 1",
    ),
]


@pytest.mark.parametrize(("sql", "problem"), CHECKS, ids=[problem for _, problem in CHECKS])
def test_a_check_finds(relay: Command, conn: Connection, sql: str, problem: str) -> None:
    conn.execute(SEEN, ["a", "1 second", "{}"])
    assert relay.run("status", "--check").returncode == 0
    conn.execute(sql.encode())
    found = relay.run("status", "--check", "--json")
    assert found.returncode == 3
    assert problem in found.stderr
    assert "sinks" in json.loads(found.stdout)


def test_a_check_leaves_a_paused_sink_and_what_was_allowed_alone(relay: Command, conn: Connection) -> None:
    conn.execute("insert into relay.outbox (kind, payload, created_at) values ('Send', '{}', now() - '2m'::interval)")
    conn.execute(SEEN, ["a", "1 second", "{}"])
    assert relay.run("status", "--check").returncode == 3
    relay("status", "--check", "--max-age", "1h")
    relay("pause", "emails", "--reason", "moving")
    conn.execute("delete from relay.relays")
    relay("status", "--check")
    conn.execute(CHECKS[3][0].encode())
    assert relay.run("status", "--check").returncode == 3
    relay("status", "--check", "--max-dead", "1")


def test_watching_prints_lines_with_rates_until_interrupted(relay: Command, conn: Connection) -> None:
    process = relay.start("status", "--watch", "--interval", "200ms")
    assert process.stdout is not None
    lines: list[str] = []
    try:
        while not any(re.search(r"written [1-9]", line) for line in lines):
            conn.execute("insert into relay.outbox (kind, payload) select 'Send', '{}' from generate_series(1, 10)")
            assert select.select([process.stdout], [], [], 30)[0], lines
            lines.append(process.stdout.readline())
        assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ written", lines[0])
        assert any("sink=emails due=" in line for line in lines)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=10)
        assert (process.returncode, stderr) == (0, "")
    finally:
        process.kill()


def test_watching_survives_a_database_that_goes_away(relay: Command, conn: Connection) -> None:
    process = relay.start("status", "--watch", "--interval", "100ms")
    assert process.stdout is not None
    try:
        process.stdout.readline()
        conn.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'relay status'")
        while "database is away" not in process.stdout.readline():
            pass
        while "sink=emails" not in process.stdout.readline():
            pass
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("args", [["--watch", "--json"], ["--watch", "--check"], ["--max-age", "soon"]])
def test_wrong_usage(relay: Command, args: list[str]) -> None:
    assert relay.run("status", *args).returncode == 2
