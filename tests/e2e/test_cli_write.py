"""`relay publish` and `relay enqueue`."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

import pytest
from psycopg import Connection
from psycopg.conninfo import make_conninfo

from tests.command import Command


def written(conn: Connection, columns: str) -> list[Any]:
    return conn.execute(f"select {columns} from relay.outbox order by id".encode()).fetchall()


def test_an_event_is_written_as_it_is_given(relay: Command, conn: Connection) -> None:
    payload = '{"n": 1234567890123456789,  "x": 0.1000, "x": 1e308}'
    printed = relay(
        "publish", "order.created", payload, "--key", "42", "--header", "a=b=c", "--header", 'sidekiq:={"retry": 3}'
    )
    columns = "message_id, sink, key, payload::text, headers, run_at"
    headers = {"a": "b=c", "sidekiq": {"retry": 3}}
    assert written(conn, columns) == [(UUID(printed.strip()), "orders", "42", payload, headers, None)]


def test_the_options_of_an_event(relay: Command, conn: Connection) -> None:
    mine = uuid4()
    assert relay.json("publish", "x", "--message-id", str(mine), "--sink", "emails") == {"message_id": str(mine)}
    assert written(conn, "message_id, sink, payload::text") == [(mine, "emails", "{}")]


def test_a_job_at_a_time_and_only_once(relay: Command, conn: Connection) -> None:
    relay(
        "enqueue", "SendReceipt", "[42]", "--run-at", "5m", "--max-attempts", "3", "--dedupe-key", "r42", "--key", "k"
    )
    assert relay("enqueue", "SendReceipt", "[42]", "--dedupe-key", "r42") == "duplicate\n"
    assert relay.json("enqueue", "SendReceipt", "[42]", "--dedupe-key", "r42") == {"message_id": None}
    relay("enqueue", "SendReceipt", "--run-at", "2099-01-31T12:00:00+02:00")
    assert written(conn, "payload::text, max_attempts, dedupe_key, key, run_at > now() + '4m'::interval") == [
        ("[42]", 3, "r42", "k", True),
        ("[]", None, None, None, True),
    ]
    assert written(conn, "run_at = '2099-01-31T10:00:00Z'")[1] == (True,)


def test_many_come_from_standard_input_a_transaction_a_thousand(relay: Command, conn: Connection) -> None:
    lines = "".join(f'{{"n": {n}}}\n' + "\n" * (n % 100 == 0) for n in range(2500))
    printed = relay("publish", "order.x", "-", "--key", "k", stdin=lines).splitlines()
    assert [str(message_id) for (message_id,) in written(conn, "message_id")] == printed
    assert [json.loads(text)["n"] for (text,) in written(conn, "payload::text")] == list(range(2500))
    assert conn.execute("select count(distinct xmin::text) from relay.outbox").fetchone() == (3,)

    documents = relay.json("enqueue", "Send", "-", stdin="[1]\r\n[2]")
    assert [str(message_id) for (message_id,) in written(conn, "message_id")[2500:]] == [
        document["message_id"] for document in documents
    ]
    assert [text for (text,) in written(conn, "payload::text")[2500:]] == ["[1]", "[2]"]
    assert relay("publish", "order.x", "-") == ""


@pytest.mark.parametrize("bad", ["{", '{"a": NaN}', '"\\u0000"', '["\\ud800"]'])
def test_a_bad_line_is_named_and_what_was_printed_is_kept(relay: Command, conn: Connection, bad: str) -> None:
    lines = "".join(f"[{n}]\n" for n in range(1, 1100)) + bad + "\n[0]\n"
    done = relay.run("enqueue", "Send", "-", stdin=lines)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: line 1100: args")
    assert done.stderr.endswith("nothing was written from line 1001 on\n")
    assert [str(message_id) for (message_id,) in written(conn, "message_id")] == done.stdout.splitlines()
    assert len(done.stdout.splitlines()) == 1000


def test_an_error_never_shows_the_payload(relay: Command, conn: Connection) -> None:
    for args in (["publish", "x", '{"card": "4242424242424242"'], ["enqueue", "x", '["4242424242424242", NaN]']):
        done = relay.run(*args)
        assert done.returncode == 2
        assert "expected" in done.stderr
        assert "4242" not in done.stderr
    assert written(conn, "id") == []


def test_a_role_that_may_only_insert_can_use_both(relay: Command, conn: Connection) -> None:
    name = f"writer_{conn.info.dbname}"
    conn.execute(f"create role {name} login in role relay_writer".encode())
    try:
        writer = Command(make_conninfo(relay.url, user=name), relay.folder)
        writer("publish", "order.created")
        writer("enqueue", "Send", "[1]", "--dedupe-key", "d")
        assert writer("enqueue", "Send", "[1]", "--dedupe-key", "d") == "duplicate\n"
        assert written(conn, "sink") == [("orders",), ("emails",)]
        refused = writer.run("status")
        assert refused.returncode == 1
        assert "permission denied" in refused.stderr
    finally:
        conn.execute(f"drop role {name}".encode())


def test_a_sink_that_is_not_configured_here_is_remarked_upon(relay: Command, conn: Connection) -> None:
    done = relay.run("publish", "x", "--sink", "email")
    assert done.returncode == 0
    assert 'the nearest is "emails"' in done.stderr
    assert written(conn, "sink") == [("email",)]


@pytest.mark.parametrize(
    "args",
    [
        ["publish"],
        ["publish", "", "{}"],
        ["publish", "x", "{}", "--header", "novalue"],
        ["publish", "x", "{}", "--header", "a:={"],
        ["publish", "x", "-", "--message-id", "0e0b5f4a-7f1a-4c52-8a3e-2f1f4a5b6c7d"],
        ["publish", "x", "{}", "--message-id", "42"],
        ["enqueue", "x", "[]", "--run-at", "soon"],
        ["enqueue", "x", "[]", "--run-at", "2099-01-31T12:00:00"],
        ["enqueue", "x", "[]", "--max-attempts", "0"],
        ["enqueue", "x", "-", "--dedupe-key", "d"],
    ],
)
def test_wrong_usage(relay: Command, conn: Connection, args: list[str]) -> None:
    assert relay.run(*args).returncode == 2
    assert written(conn, "id") == []
