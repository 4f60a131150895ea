"""`relay keys blocked`, `relay keys release`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sinks.base import DELIVERED, Outcome, Reject, Retry
from tests.command import Command
from tests.harness.ordered import OrderedSink

MakeSink = Callable[..., OrderedSink]

CONFIGURATION = '[sinks.main]\ntype = "memory"\norder = "key"\nshards = 4\nafter_dead = "block"\n'


@pytest.fixture
def sink(ordered: MakeSink) -> OrderedSink:
    """Key "a" is blocked with two messages waiting, "b" with none, "c" waits for its next try."""
    sink = ordered(shards=4, after_dead="block", backoff={"base": "1h", "max": "1h"})
    sink.insert("a", "a", "a", "b", "c", "d")
    outcomes: dict[str, Outcome] = {
        "a": Reject("not\na thing"),
        "b": Reject("never"),
        "c": Retry("later"),
        "d": DELIVERED,
    }
    sink.round(sink.worker(), lambda message: outcomes[str(message.key)])
    return sink


def test_blocked_keys_are_listed(relay: Command, sink: OrderedSink) -> None:
    rows = relay("keys", "blocked").splitlines()
    assert rows[0].split() == ["SINK", "KEY", "WAITING", "SINCE", "NEXT", "TRY", "REASON"]
    assert sorted([*row.split()[:3], " ".join(row.split()[4:])] for row in rows[1:]) == [
        ["main", "a", "2", "when released not a thing"],
        ["main", "b", "0", "when released never"],
    ]
    (a, b) = sorted(relay.json("keys", "blocked", "--sink", "main"), key=lambda row: row["key"])
    assert (a["key"], a["waiting"], a["retry_at"], a["reason"]) == ("a", 2, None, "not\na thing")
    assert b["waiting"] == 0
    assert b["since"].endswith("Z")


def test_all_are_listed_page_by_page(relay: Command, sink: OrderedSink) -> None:
    everything = relay.json("keys", "blocked", "--all")
    assert sorted(row["key"] for row in everything) == ["a", "b", "c"]
    assert next(row for row in everything if row["key"] == "c")["retry_at"].endswith("Z")
    assert len(relay("keys", "blocked", "--all", "--limit", "2").splitlines()) == 3
    assert "there are more" in relay.run("keys", "blocked", "--all", "--limit", "2").stderr
    sink.sql(
        "insert into relay.stuck_keys (sink, key_hash, key, upto)"
        " select 'main', g, g::text, 0 from generate_series(1, 1234) g"
    )
    assert len(relay.json("keys", "blocked")) == 1236
    assert len(relay("keys", "blocked").splitlines()) == 101


def test_nothing_is_blocked(relay: Command, ordered: MakeSink) -> None:
    ordered()
    assert relay("keys", "blocked") == "no blocked keys\n"
    assert relay("keys", "blocked", "--all") == "no stuck keys\n"
    assert relay.json("keys", "blocked") == []


def test_a_released_key_goes_on(relay: Command, sink: OrderedSink) -> None:
    done = relay.run("keys", "release", "--sink", "main", "a", "x")
    assert (done.returncode, done.stdout) == (0, "released 1 key\n")
    assert done.stderr == 'key "x" was not stuck\n'
    sink.upkeep()
    worker = sink.worker()
    assert sink.round(worker)
    assert sink.round(worker)
    assert len(sink.keys(key="a")) == 2
    assert relay.json("keys", "release", "--all") == {"released": 1}
    sink.upkeep()
    assert [row["key"] for row in relay.json("keys", "blocked", "--all")] == ["c"]


def test_a_requeued_message_releases_its_key(relay: Command, sink: OrderedSink) -> None:
    (first,) = sink.sql("select min(id) from relay.dead")[0]
    relay("dead", "requeue", "--yes", str(first))
    assert [row["key"] for row in relay.json("keys", "blocked")] == ["b"]
    sink.upkeep()
    worker = sink.worker()
    while sink.round(worker):
        pass
    assert sink.keys(key="a") == [first, first + 1, first + 2]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["release"], "expected keys or --all, got neither"),
        (["release", "--all", "--sink", "main", "a"], "expected keys or --all, got both"),
        (["release", "a"], "expected --sink with keys"),
        (["release", "--all", "--sink", "mian"], 'expected a sink that "relay apply" has written'),
        (["blocked", "--sink", "mian"], 'the nearest is "main"'),
    ],
)
def test_wrong_usage(relay: Command, sink: OrderedSink, arguments: list[str], error: str) -> None:
    done = relay.run("keys", *arguments)
    assert done.returncode == 2
    assert error in done.stderr
    assert sink.count("stuck_keys", "retry_at is null") == 2
