"""`relay dead`: by id, by filter, by the hundred thousand; nothing is lost on the way back."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import Connection

from tests.command import Command
from tests.servers.base import wait_until

MANY = 100_000

CARRIED = (
    "sink, kind, key, payload::text, body, headers, message_id, max_attempts, dedupe_key, prior_tokens, created_at"
)


def bury(conn: Connection, count: int) -> None:
    """Dead messages 1 to `count`: every third for orders, ten kinds, seven errors, one an hour back in time."""
    conn.execute(
        """
        insert into relay.dead (id, sink, shard, kind, key, payload, headers, message_id, attempts, max_attempts,
                                prior_tokens, error, created_at, died_at)
        select g, case when g %% 3 = 0 then 'orders' else 'emails' end, 0, 'kind.' || g %% 10, 'k' || g %% 100,
               ('{"n":  ' || g || '.10}')::json, '{"trace": "t"}', gen_random_uuid(), 20, 20,
               array[gen_random_uuid()], 'error ' || g %% 7, now() - interval '3 days',
               now() - interval '30 minutes' - least(g, 100) * interval '1 hour'
          from generate_series(1, %s) g
        """,
        [count],
    )


def value(conn: Connection, sql: str) -> Any:
    row = conn.execute(sql.encode()).fetchone()
    assert row is not None
    return row[0]


def listed(relay: Command, *args: str) -> list[int]:
    return [message["id"] for message in relay.json("dead", "list", *args)]


def test_the_list_in_a_pipe_is_plain_text_by_pages(relay: Command, conn: Connection) -> None:
    assert relay("dead", "list") == "no dead messages\n"
    assert relay("dead", "list", "--sink", "emial") == "no dead messages: no sink is called emial\n"
    bury(conn, 250)
    first = relay.run("dead", "list")
    lines = first.stdout.splitlines()
    assert re.split(r"  +", lines[0]) == ["ID", "SINK", "KIND", "KEY", "ATTEMPTS", "DIED AT", "ERROR"]
    assert re.split(r"  +", lines[3])[:5] == ["3", "orders", "kind.3", "k3", "20"]
    assert len(lines) == 101
    assert first.stderr == "there are more: --after 100, or --all\n"
    assert relay("dead", "list", "--after", "100").splitlines()[1].startswith("101 ")
    assert len(relay("dead", "list", "--all").splitlines()) == 251
    assert len(relay("dead", "list", "--limit", "7").splitlines()) == 8


def test_the_filters(relay: Command, conn: Connection) -> None:
    bury(conn, 60)
    conn.execute("update relay.dead set error = 'a_b%c\\d', kind = 'a_b' where id = 1")
    assert listed(relay) == list(range(1, 61))
    assert listed(relay, "3", "5", "999") == [3, 5]
    assert listed(relay, "--sink", "orders") == list(range(3, 61, 3))
    assert listed(relay, "--kind", "kind.7") == [7, 17, 27, 37, 47, 57]
    assert listed(relay, "--kind", "k*.7", "--sink", "orders") == [27, 57]
    assert listed(relay, "--kind", "kind?7", "--error", "error 6") == [27]
    assert listed(relay, "--kind", "a_b") == [1]
    assert listed(relay, "--kind", "ki_d*") == []
    assert listed(relay, "--error", "_b%c\\") == [1]
    # Message n died n and a half hours ago.
    assert listed(relay, "--since", "5h") == [1, 2, 3, 4]
    assert listed(relay, "--until", "2d", "--since", "50h") == [48, 49]
    now = value(conn, "select now()")
    assert listed(relay, "--since", (now - timedelta(hours=3)).astimezone(UTC).isoformat()) == [1, 2]
    assert listed(relay, "--until", f"{now - timedelta(hours=59):%Y-%m-%dT%H:%M:%S}Z", "--after", "5") == [59, 60]
    assert listed(relay, "--all", "--limit", "2", "--after", "10") == [11, 12]


def test_show_tells_everything_but_the_payload_unless_asked(relay: Command, conn: Connection) -> None:
    bury(conn, 2)
    conn.execute("update relay.dead set past_errors = array['first', 'second'] where id = 1")
    conn.execute("update relay.dead set payload = null, body = '\\xfffe00' where id = 2")
    shown = relay("dead", "show", "1")
    assert '{"trace": "t"}' in shown
    assert [re.split(r"  +", line)[-1] for line in shown.splitlines() if line.startswith("past_errors")] == [
        "first",
        "second",
    ]
    assert "1.10" not in shown
    assert '{"n":  1.10}' in relay("dead", "show", "1", "--payload")

    document = relay.json("dead", "show", "1")
    assert document["past_errors"] == ["first", "second"]
    assert document["headers"] == {"trace": "t"}
    assert datetime.fromisoformat(document["died_at"]) == value(conn, "select died_at from relay.dead where id = 1")
    assert "payload" not in document
    assert relay.json("dead", "show", "1", "--payload")["payload"] == '{"n":  1.10}'
    assert relay.json("dead", "show", "2", "--payload")["body"] == "//4A"

    missing = relay.run("dead", "show", "77")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "no dead message has the id 77" in missing.stderr


def test_a_requeued_message_is_what_it_was_and_starts_again(relay: Command, conn: Connection) -> None:
    bury(conn, 5)
    conn.execute("update relay.dead set past_errors = array['long ago'], dedupe_key = 'd', kind = 'Send' where id = 3")
    before = conn.execute(f"select id, {CARRIED} from relay.dead where id in (2, 3) order by id".encode()).fetchall()
    assert relay("dead", "requeue", "3", "2", "--yes") == "requeued 2 messages\n"
    assert listed(relay) == [1, 4, 5]
    assert conn.execute(f"select id, {CARRIED} from relay.outbox order by id".encode()).fetchall() == before
    row = conn.execute(
        "select attempts, run_at, claim_token, last_error, past_errors, due_at > now() - '1m'::interval, shard "
        "from relay.outbox where id = 3"
    ).fetchone()
    assert row is not None
    attempts, run_at, claim_token, last_error, past_errors, due_just_now, shard = row
    assert (attempts, run_at, claim_token, last_error, due_just_now) == (0, None, None, "error 3", True)
    assert past_errors[0] == "long ago"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ, after 20 attempts: error 3", past_errors[1])
    # Its shard is that of its key now, whatever it was when the message died.
    conn.execute("insert into relay.outbox (sink, kind, key, payload) values ('orders', 'x', 'k3', '{}')")
    assert value(conn, "select shard from relay.outbox where kind = 'x'") == shard

    again = relay.run("dead", "requeue", "3", "2", "4", "--yes")
    assert (again.returncode, again.stdout) == (1, "requeued 1 message\n")
    assert "expected 3 dead messages with these ids, found 1" in again.stderr


def test_a_new_generation_is_another_message(relay: Command, conn: Connection) -> None:
    bury(conn, 1)
    old = value(conn, "select message_id from relay.dead")
    assert relay("dead", "requeue", "1", "--again", "--yes") == "requeued 1 message\n"
    row = conn.execute("select id, message_id, prior_tokens from relay.outbox").fetchone()
    assert row is not None
    assert (row[0], row[2]) == (1, None)
    assert row[1] != old


def test_a_discarded_message_leaves_its_key_blocked_and_that_is_said(relay: Command, conn: Connection) -> None:
    bury(conn, 6)
    conn.execute(
        "insert into relay.stuck_keys (sink, key_hash, key, upto, retry_at)"
        " values ('orders', relay.hash_of('k3', null), 'k3', 2, null),"
        " ('orders', relay.hash_of('k6', null), 'k6', 5, now())"
    )
    printed = relay("dead", "discard", "3", "6", "--yes")
    assert printed == (
        'discarded 2 messages\nkey "k3" of sink orders is still blocked: relay keys release --sink orders KEY\n'
    )
    assert relay.json("dead", "discard", "1", "--yes")["blocked_keys"] == []
    unknown = relay.run("dead", "discard", "424242", "--yes")
    assert unknown.returncode == 1
    assert "expected 1 dead message with these ids, found 0" in unknown.stderr


def test_a_message_whose_duplicate_lives_stays_dead(relay: Command, conn: Connection) -> None:
    bury(conn, 10)
    conn.execute("update relay.dead set dedupe_key = 'd' || id, sink = 'emails' where id in (4, 5, 6, 7)")
    conn.execute("update relay.dead set dedupe_key = 'd6' where id = 7")
    conn.execute(
        "insert into relay.outbox (sink, kind, payload, dedupe_key) "
        "values ('emails', 'x', '{}', 'd4'), ('orders', 'x', '{}', 'd5')"
    )
    printed = relay("dead", "requeue", "--all", "--yes")
    assert printed.startswith(
        "requeued 8 messages\n2 messages stayed dead: a live message has the same dedupe_key, or "
    )
    # 4: its duplicate lives; 5: only in another sink; 7: 6 has just come to live again.
    assert listed(relay) == [4, 7]
    assert value(conn, "select count(*) from relay.outbox") == 10

    conn.execute("delete from relay.outbox where dedupe_key in ('d4', 'd6')")
    assert relay.json("dead", "requeue", "--all", "--yes") == {
        "matched": 2,
        "requeued": 2,
        "skipped": 0,
        "dry_run": False,
    }


def test_a_hundred_thousand_are_requeued_and_discarded_in_batches(relay: Command, conn: Connection) -> None:
    bury(conn, MANY)
    assert len(relay("dead", "list", "--limit", "5").splitlines()) == 6
    assert relay("dead", "requeue", "--sink", "emails", "--dry-run") == "would requeue 66,667 messages\n"
    assert value(conn, "select count(*) from relay.dead") == MANY

    assert relay("dead", "requeue", "--sink", "emails", "--yes") == "requeued 66,667 messages\n"
    in_one_transaction = "select max(n) from (select count(*) n from relay.outbox group by xmin::text) x"
    assert value(conn, in_one_transaction) == 1000
    assert value(conn, "select count(*) from relay.dead") == MANY - 66_667

    kept = value(conn, "select count(*) from relay.dead where error <> 'error 3'")
    assert relay("dead", "discard", "--error", "error 3", "--yes").startswith("discarded 4,7")
    assert value(conn, "select count(*) from relay.dead") == kept
    assert len(relay.json("dead", "list")) == kept
    assert relay.json("dead", "discard", "--all", "--dry-run") == {
        "matched": kept,
        "discarded": 0,
        "dry_run": True,
        "blocked_keys": [],
    }
    relay("dead", "discard", "--all", "--yes")
    assert relay("dead", "discard", "--all", "--yes") == "discarded 0 messages\n"
    assert value(conn, "select count(*) from relay.outbox") == 66_667


def test_two_persons_requeue_at_once_and_one_is_killed(relay: Command, conn: Connection) -> None:
    bury(conn, 30_000)
    processes = [relay.start("dead", "requeue", "--all", "--yes") for _ in range(2)]
    wait_until(lambda: value(conn, "select count(*) from relay.outbox") > 0, timeout=30)
    processes[0].kill()
    for process in processes:
        process.communicate(timeout=60)
    assert processes[1].returncode == 0
    assert value(conn, "select count(*) from relay.dead") == 0
    assert value(conn, "select count(*) from relay.outbox") == 30_000
    assert value(conn, "select count(distinct id) from relay.outbox") == 30_000


def test_the_question(relay: Command, conn: Connection) -> None:
    bury(conn, 3)
    for answer in ("n\n", ""):
        refused = relay.run("dead", "discard", "--all", stdin=answer)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "Discard 3 dead messages?" in refused.stderr
        assert "--yes" in refused.stderr
    assert listed(relay) == [1, 2, 3]
    assert relay("dead", "discard", "2", stdin="y\n") == "discarded 1 message\n"
    assert json.loads(relay("dead", "requeue", "--all", "--json", stdin="y\n"))["requeued"] == 2


@pytest.mark.parametrize(
    "args",
    [
        ["requeue"],
        ["discard", "--yes"],
        ["requeue", "x"],
        ["list", "--since", "yesterday"],
        ["list", "--since", "2026-01-31T12:00:00"],
        ["list", "--limit", "0"],
        ["show"],
    ],
)
def test_wrong_usage(relay: Command, args: list[str]) -> None:
    assert relay.run("dead", *args).returncode == 2
