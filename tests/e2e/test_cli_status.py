"""`relay status` as a person or a monitor runs it."""

from __future__ import annotations

import json
import re
import select
import signal
from pathlib import Path

import psycopg
import pytest
from psycopg import Connection

from tests.command import Command, configured
from tests.servers.postgres import migrate, new_cluster, new_database

QUIET = {
    "due": 0,
    "scheduled": 0,
    "later": 0,
    "retrying": 0,
    "held": 0,
    "keys": 0,
    "claimed": 0,
    "dead": 0,
    "oldest_due_seconds": None,
    "paused": None,
    "paused_seconds": None,
    "circuit": "unknown",
    "circuit_reason": None,
}

SEEN = "insert into relay.relays (worker, seen_at, circuits) values (%s, clock_timestamp() - %s::interval, %s)"


def test_nothing_waits(relay: Command) -> None:
    assert relay.json("status") == {"sinks": {"emails": QUIET, "orders": QUIET}, "unrouted": 0, "relays": []}
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
    conn.execute(
        "update relay.sinks set paused_at = now() - interval '3 hours', paused_reason = 'moving' where name = 'emails'"
    )

    status = relay.json("status")
    assert status["unrouted"] == 2
    ages = {name: sink.pop("oldest_due_seconds") for name, sink in status["sinks"].items()}
    assert status["sinks"]["emails"].pop("paused_seconds") > 3 * 3600
    some = {name: value for name, value in QUIET.items() if name != "oldest_due_seconds"}
    emails = {"due": 36, "scheduled": 10, "later": 10, "claimed": 4, "dead": 3, "paused": "moving", "circuit": "closed"}
    orders = {"due": 39, "scheduled": 10, "later": 10, "claimed": 1, "circuit": "open"}
    assert status["sinks"]["orders"] == {**some, **orders, "circuit_reason": "connection refused"}
    del some["paused_seconds"]
    assert status["sinks"]["emails"] == {**some, **emails}
    # Written 100, 98, 96, 94 seconds ago are claimed; so is the one written 99 seconds ago.
    assert 92 <= ages["emails"] < 92 + 60
    assert 97 <= ages["orders"] < 97 + 60

    printed = relay("status")
    assert re.search(r"^emails +36 +10 +0 +0 +0 +4 +3 +\d+\.\ds +moving \(3h\) +closed$", printed, re.MULTILINE)
    assert "open: connection refused" in printed
    assert "1 relay, 2 messages without a route" in printed
    assert "\x1b" not in printed


def test_what_waits_is_told_by_what_it_waits_for(relay: Command, conn: Connection) -> None:
    """Its time, its next attempt, an unavailable destination, an earlier message of its key."""
    conn.execute(
        "insert into relay.outbox (kind, key, payload, run_at) "
        "select 'order.x', 'k' || g, '{}', now() + '1h'::interval from generate_series(1, 10) g"
    )
    conn.execute("update relay.outbox set last_error = 'time-out' where key in ('k1', 'k2', 'k3')")
    conn.execute("update relay.outbox set run_at = 'infinity', destination = 'queue' where key in ('k4', 'k5')")
    conn.execute("update relay.outbox set run_at = 'infinity' where key = 'k6'")
    orders = relay.json("status")["sinks"]["orders"]
    assert orders == {**QUIET, "scheduled": 10, "later": 4, "retrying": 3, "held": 2, "keys": 1}


def test_relays_are_listed_with_what_they_serve(relay: Command, conn: Connection) -> None:
    sinks = {"emails": {"waits": None, "since": 1}, "orders": {"waits": "its order ended", "since": 1}}
    conn.execute(
        "insert into relay.relays (worker, host, version, sinks, started_at) "
        "values ('h:1:a', 'h', '1.2', %s, now() - interval '2 hours')",
        [json.dumps(sinks)],
    )
    (one,) = relay.json("status")["relays"]
    assert one.pop("up_seconds") > 2 * 3600
    assert one.pop("seen_seconds") < 60
    waits = {"orders": "its order ended"}
    assert one == {"worker": "h:1:a", "host": "h", "version": "1.2", "sinks": ["emails"], "waits": waits}
    assert "relay h:1:a, 1.2, for 2h, serves emails; not orders: its order ended\n" in relay("status")
    assert relay.json("status")["sinks"]["emails"]["circuit"] == "closed"
    assert relay.json("status")["sinks"]["orders"]["circuit"] == "unknown"
    done = relay.run("status", "--check")
    assert 'sink "orders": no relay serves it: h: its order ended' in done.stderr


def test_a_relay_whose_session_is_gone_does_not_count(relay: Command, conn: Connection) -> None:
    """Nor does its circuit show as the sink's. Behind a pooler only time can tell."""
    conn.execute(
        "insert into relay.relays (worker, backend_pid, circuits) values "
        "('killed', 2147483647, '{\"emails\": \"refused\"}'), ('alive', pg_backend_pid(), '{}')"
    )
    status = relay.json("status")
    assert [one["worker"] for one in status["relays"]] == ["alive"]
    assert status["sinks"]["emails"]["circuit_reason"] is None


def test_the_age_counts_from_the_commit_where_the_server_knows_it(tmp_path: Path) -> None:
    """A transaction that was open for long has written nothing that a relay could see. Unknown, it counts from the
    insert, as after a restart of the server without the setting."""
    with new_cluster() as cluster, cluster.run(track_commit_timestamp="on"), new_database(cluster.url()) as url:
        migrate(url)
        relay = configured(url, tmp_path)
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute(
                "insert into relay.outbox (kind, payload, created_at) values ('Send', '{}', now() - '1h'::interval)"
            )
            assert relay.json("status")["sinks"]["emails"]["oldest_due_seconds"] < 60


def test_the_age_counts_from_when_a_message_was_due(relay: Command, conn: Connection) -> None:
    conn.execute(
        "insert into relay.outbox (kind, payload, created_at, run_at) values "
        "('Send', '1', now() - '10h'::interval, now() + '10h'::interval), ('Send', '2', now() - '9h'::interval, null)"
    )
    conn.execute("update relay.outbox set due_at = clock_timestamp() where payload::text = '2'")
    assert relay.json("status")["sinks"]["emails"]["oldest_due_seconds"] < 60
    conn.execute("delete from relay.outbox where payload::text = '2'")
    assert relay.json("status")["sinks"]["emails"] == {**QUIET, "scheduled": 1, "later": 1}


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
        "no relay runs",
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
