"""`relay apply`: only the difference, nothing that leaves messages behind, and a way out of "unrouted"."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import Connection
from psycopg.conninfo import make_conninfo

from tests.command import SINKS, Command
from tests.harness.observer import observed_writer
from tests.servers.base import wait_until

pytestmark = pytest.mark.full

EVERYTHING = '\n[[routes]]\nkind = "*"\nsink = "emails"\n'


@pytest.fixture
def relay(relay_database_url: str, tmp_path: Path) -> Command:
    command = Command(relay_database_url, tmp_path)
    command.configure(SINKS)
    return command


@pytest.fixture
def conn(relay_database_url: str) -> Iterator[Connection]:
    with psycopg.connect(relay_database_url, autocommit=True) as connection:
        yield connection


def rows(conn: Connection, sql: str) -> list[Any]:
    return conn.execute(sql.encode()).fetchall()


def footprint(conn: Connection) -> list[Any]:
    """Which transactions last wrote the configuration, the compiled routes, and every message."""
    return rows(
        conn,
        "select 'sink', xmin::text from relay.sinks union all select 'route', xmin::text from relay.routes "
        "union all select 'function', xmin::text from pg_proc where proname = 'route' "
        "union all select 'message', xmin::text from relay.outbox order by 1, 2",
    )


def test_it_writes_what_the_file_says(relay: Command, conn: Connection) -> None:
    printed = relay("apply")
    assert "+ sink emails" in printed
    assert "+ route order.* → orders" in printed
    assert rows(conn, "select name, shards, max_attempts, hand_over, strict from relay.sinks order by 1") == [
        ("emails", 0, 20, None, False),
        ("orders", 8, 20, None, False),
    ]
    assert rows(conn, "select kind, sink, lo, hi, shadow from relay.routes order by 1") == [
        ("Send*", "emails", 0, 100, False),
        ("order.*", "orders", 0, 100, False),
    ]
    conn.execute("insert into relay.outbox (kind, key, payload) values ('order.created', '42', '{}')")
    assert rows(conn, "select sink from relay.outbox") == [("orders",)]


def test_applied_again_it_writes_nothing(relay: Command, conn: Connection) -> None:
    relay("apply")
    conn.execute("insert into relay.outbox (kind, payload) values ('Send', '{}'), ('nothing.matches', '{}')")
    before = footprint(conn)
    assert "no difference" in relay("apply")
    document = {"changes": [], "dry_run": False, "repaired": [], "rerouted": 0, "unrouted": 1}
    assert relay.json("apply") == document
    assert footprint(conn) == before


def test_only_what_differs_is_written(relay: Command, conn: Connection) -> None:
    relay("apply")
    orders_before = rows(conn, "select xmin::text from relay.sinks where name = 'orders'")
    relay.configure(
        SINKS.replace('[sinks.emails]\ntype = "memory"', '[sinks.emails]\ntype = "memory"\nmax_attempts = 5')
    )
    printed = relay("apply")
    assert [line[:13] for line in printed.splitlines()] == ["~ sink emails"]
    assert rows(conn, "select max_attempts from relay.sinks where name = 'emails'") == [(5,)]
    assert rows(conn, "select xmin::text from relay.sinks where name = 'orders'") == orders_before


def test_a_dry_run_shows_the_difference_and_changes_nothing(relay: Command, conn: Connection) -> None:
    relay("apply")
    relay.configure(
        SINKS.replace('sink = "orders"', 'sink = "orders"\nshare = [0, 50]').replace("Send", "Post")
        + '[sinks.audit]\ntype = "memory"\n'
    )
    conn.execute("insert into relay.outbox (kind, payload) values ('PostLetter', '{}')")
    before = footprint(conn)
    signs = [line.split(":")[0] for line in relay("apply", "--dry-run").splitlines()]
    assert signs == [
        "+ sink audit",
        "+ route Post* → emails",
        "- route Send* → emails",
        "~ route order.* → orders",
        "nothing was changed",
    ]
    changes = relay.json("apply", "--dry-run")["changes"]
    assert [change["change"] for change in changes] == ["+", "+", "-", "~"]
    assert changes[3] == {"change": "~", "kind": "order.*", "sink": "orders", "share": [0, 50], "shadow": False}
    assert footprint(conn) == before

    relay("apply", "--yes")
    assert relay.json("apply", "--dry-run")["changes"] == []
    assert rows(conn, "select kind, hi from relay.routes order by 1") == [("Post*", 100), ("order.*", 50)]


def test_a_sink_that_hands_scheduled_messages_over_is_known_as_such(relay: Command, conn: Connection) -> None:
    sidekiq = '[sinks.{}]\ntype = "sidekiq"\nurl = "redis://localhost/0"\nqueue = "default"\n'
    relay.configure(
        sidekiq.format("early") + 'schedule = "sidekiq"\n' + sidekiq.format("late") + '[sinks.log]\ntype = "memory"\n'
    )
    relay("apply")
    assert rows(conn, "select name, hand_over from relay.sinks order by 1") == [
        ("early", 2**31 - 1),
        ("late", None),
        ("log", None),
    ]


def test_what_the_file_does_not_have_is_not_removed_without_a_question(relay: Command, conn: Connection) -> None:
    """Another team's file would take away this team's routes. A share that moves removes nothing."""
    relay("apply")
    before = footprint(conn)
    relay.configure(SINKS.replace("Send", "Post") + '[sinks.audit]\ntype = "memory"\n')
    for answer in ("", "n\n"):
        refused = relay.run("apply", stdin=answer)
        assert refused.returncode == 1
        assert "- route Send* → emails\nRemove these, which the file does not have?" in refused.stderr
        assert footprint(conn) == before
    assert relay.run("apply", stdin="y\n").returncode == 0
    relay.configure(
        SINKS.replace("Send", "Post").replace('sink = "orders"', 'sink = "orders"\nshare = [0, 50]')
        + '[[routes]]\nkind = "order.*"\nsink = "orders"\nshare = [50, 100]\n'
    )
    assert "- sink audit" in relay.run("apply").stderr
    relay("apply", "--yes")
    relay.configure(SINKS.replace("Send", "Post").replace('sink = "orders"', 'sink = "orders"\nshare = [5, 100]'))
    relay("apply")


def test_what_it_prints_are_the_words_of_the_file(relay: Command) -> None:
    printed = relay("apply")
    assert '+ sink emails: order "none", max_attempts 20, schedule "relay"\n' in printed
    assert '+ sink orders: order "key", shards 8, strict false, max_attempts 20, schedule "relay"\n' in printed
    assert "hand_over" not in printed
    assert "null" not in printed


def test_an_order_that_the_file_forgot_is_not_ended(relay: Command, conn: Connection) -> None:
    relay("apply")
    conn.execute("insert into relay.outbox (kind, key, payload) values ('order.created', '42', '{}')")
    relay.configure(SINKS.replace('order = "key"\n', ""))
    for args in (["apply"], ["apply", "--dry-run"]):
        refused = relay.run(*args)
        assert refused.returncode == 1
        assert 'nothing was applied: sink "orders" keeps its order and has 1 live messages' in refused.stderr
        assert 'lacks: order = "key", shards = 8' in refused.stderr
    conn.execute("delete from relay.outbox")
    assert 'the order of sink "orders" ends' in relay.run("apply").stderr


@pytest.mark.parametrize("table", ["outbox", "dead"])
def test_a_sink_with_messages_is_not_removed(relay: Command, conn: Connection, table: str) -> None:
    relay("apply")
    if table == "outbox":
        conn.execute(
            "insert into relay.outbox (sink, kind, payload, run_at) values ('orders', 'o', '{}', now() + '1h')"
        )
    else:
        conn.execute(
            "insert into relay.dead (id, sink, shard, kind, payload, message_id, attempts, error, created_at) "
            "values (1, 'orders', 0, 'o', '{}', gen_random_uuid(), 1, 'e', now())"
        )
    before = footprint(conn)
    relay.configure('[sinks.emails]\ntype = "memory"\n')
    for args in (["apply"], ["apply", "--dry-run"]):
        refused = relay.run(*args)
        assert refused.returncode == 1
        assert 'sink "orders"' in refused.stderr
        assert ("1 live and 0 dead" if table == "outbox" else "0 live and 1 dead") in refused.stderr
    assert footprint(conn) == before

    conn.execute(f"delete from relay.{table}".encode())
    assert "- sink orders" in relay("apply", "--yes")
    assert rows(conn, "select name from relay.sinks") == [("emails",)]


def test_the_number_of_shards_is_not_changed_under_messages(relay: Command, conn: Connection) -> None:
    relay("apply")
    conn.execute("insert into relay.outbox (kind, key, payload) values ('order.created', '42', '{}')")
    relay.configure(SINKS.replace("shards = 8", "shards = 4"))
    refused = relay.run("apply")
    assert refused.returncode == 1
    assert "1 live messages in 8 shards, so it cannot have 4" in refused.stderr
    conn.execute("delete from relay.outbox")
    relay("apply")
    assert rows(conn, "select shards from relay.sinks where name = 'orders'") == [(4,)]


def test_a_message_that_is_being_written_counts(relay: Command, conn: Connection, relay_database_url: str) -> None:
    relay("apply")
    relay.configure(SINKS.replace("shards = 8", "shards = 4"))
    with psycopg.connect(relay_database_url) as writer:
        writer.execute("insert into relay.outbox (kind, key, payload) values ('order.created', '42', '{}')")
        process = relay.start("apply")
        waits = (
            "select from pg_locks join pg_stat_activity using (pid) where not granted and application_name ~ 'apply'"
        )
        wait_until(lambda: rows(conn, waits), timeout=20, what="apply waiting for the writer")
        writer.commit()
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "1 live messages in 8 shards" in stderr
    assert rows(conn, "select shards from relay.sinks where name = 'orders'") == [(8,)]


def test_writers_lose_little_while_it_waits_for_one_of_them(
    relay: Command, conn: Connection, relay_database_url: str
) -> None:
    """To remove a sink or change its shards it must see what others are writing, and lets them write meanwhile."""
    relay("apply")
    relay.configure(SINKS.replace("shards = 8", "shards = 4"))
    with psycopg.connect(relay_database_url) as holder, observed_writer(relay_database_url) as observed:
        holder.execute("insert into relay.outbox (kind, payload) values ('made', '{}')")
        process = relay.start("apply")
        assert process.stderr is not None
        for _ in range(3):
            assert f"process {holder.info.backend_pid}" in process.stderr.readline()
    assert 0 < observed.share < 0.2
    process.communicate(timeout=30)
    assert process.returncode == 0
    assert rows(conn, "select shards from relay.sinks where name = 'orders'") == [(4,)]


def test_a_file_without_sinks_removes_nothing(relay: Command, conn: Connection) -> None:
    relay("apply")
    (relay.folder / "relay.toml").unlink()
    for args in (["apply"], ["apply", "--dry-run"]):
        refused = relay.run(*args)
        assert refused.returncode == 2
        assert "is it the right file" in refused.stderr
    assert rows(conn, "select count(*) from relay.sinks") == [(2,)]


def test_a_route_that_is_there_twice_is_refused(relay: Command) -> None:
    relay.configure(SINKS + '\n[[routes]]\nkind = "Send*"\nsink = "emails"\nshare = [0, 10]\n')
    refused = relay.run("apply")
    assert refused.returncode == 2
    assert "kind Send*, sink emails and share from 0, got several" in refused.stderr


def test_several_at_once_agree(relay: Command, conn: Connection) -> None:
    processes = [relay.start("apply") for _ in range(4)]
    for process in processes:
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == 0, stderr
    assert rows(conn, "select count(*) from relay.routes") == [(2,)]


def test_messages_without_a_route_get_one_and_stay_what_they_are(relay: Command, conn: Connection) -> None:
    relay("apply")
    conn.execute(
        """
        insert into relay.outbox (kind, key, payload, headers, run_at, max_attempts)
        select 'late.' || g, 'k' || g % 7, ('{"n":  ' || g || '.10}')::json, '{"h": 1}',
               case when g % 10 = 0 then now() + interval '1 hour' end, 3
          from generate_series(1, 2500) g
        """
    )
    conn.execute("insert into relay.outbox (kind, body) values ('unknown', '\\xfffe00')")
    what = (
        "select id, kind, key, payload::text, body, headers, message_id, run_at, attempts, max_attempts, created_at "
        "from relay.outbox where sink = '{}' order by id"
    )
    before = rows(conn, what.format("unrouted"))
    assert len(before) == 2501

    relay.configure(SINKS + '\n[[routes]]\nkind = "late.*"\nsink = "orders"\n')
    assert relay.json("apply")["rerouted"] == 2500
    assert rows(conn, what.format("orders")) == before[:-1]
    assert rows(conn, what.format("unrouted")) == before[-1:]
    # Their shards are those of messages that are written now.
    conn.execute(
        "insert into relay.outbox (kind, key, payload) select 'late.x', 'k' || g, '{}' from generate_series(0, 6) g"
    )
    assert rows(conn, "select max(n) from (select count(distinct shard) n from relay.outbox group by sink, key) x") == [
        (1,)
    ]

    document = {"changes": [], "dry_run": False, "repaired": [], "rerouted": 0, "unrouted": 1}
    assert relay.json("apply") == document


def test_a_message_gets_a_copy_for_each_sink_and_only_for_its_buckets(relay: Command, conn: Connection) -> None:
    relay("apply")
    conn.execute(
        "insert into relay.outbox (kind, key, payload) select 'x', 'k' || g, '{}' from generate_series(1, 300) g"
    )
    relay.configure(
        SINKS
        + '\n[[routes]]\nkind = "x"\nsink = "orders"\nshare = [0, 50]\n'
        + '\n[[routes]]\nkind = "x"\nsink = "emails"\nshare = [0, 50]\n'
    )
    result = relay.json("apply")
    assert 0 < result["rerouted"] < 300
    assert result["unrouted"] == 300 - result["rerouted"]
    assert rows(
        conn, "select sink, count(*)::int, count(distinct message_id)::int from relay.outbox group by 1 order by 1"
    ) == [
        ("emails", result["rerouted"], result["rerouted"]),
        ("orders", result["rerouted"], result["rerouted"]),
        ("unrouted", result["unrouted"], result["unrouted"]),
    ]

    relay.configure(SINKS + EVERYTHING)
    assert relay.json("apply", "--yes")["rerouted"] == result["unrouted"]


def test_a_message_whose_duplicate_lives_stays_until_it_is_gone(relay: Command, conn: Connection) -> None:
    relay("apply")
    conn.execute("insert into relay.outbox (kind, payload, dedupe_key) values ('x', '1', 'same'), ('x', '2', 'other')")
    conn.execute("insert into relay.outbox (sink, kind, payload, dedupe_key) values ('emails', 'x', '3', 'same')")
    relay.configure(SINKS + EVERYTHING)
    result = relay.json("apply")
    assert (result["rerouted"], result["unrouted"]) == (1, 1)
    assert rows(conn, "select payload::text from relay.outbox where sink = 'unrouted'") == [("1",)]
    conn.execute("delete from relay.outbox where payload::text = '3'")
    result = relay.json("apply")
    assert (result["rerouted"], result["unrouted"]) == (1, 0)


def test_the_role_of_a_relay_may_apply(relay: Command, conn: Connection) -> None:
    name = f"applier_{conn.info.dbname}"
    conn.execute(f"create role {name} login in role relay_worker".encode())
    try:
        conn.execute("insert into relay.outbox (kind, payload) values ('Send', '{}')")
        limited = Command(make_conninfo(relay.url, user=name), relay.folder)
        assert limited.json("apply")["rerouted"] == 1
        limited.configure(SINKS.replace("shards = 8", "shards = 4"))
        limited("apply")
    finally:
        conn.execute(f"drop role {name}".encode())
