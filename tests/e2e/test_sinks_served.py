"""Which sinks a relay serves: one that it cannot serve stops no other, says why, and is taken up once it can be."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.harness.outbox import Outbox
from tests.servers.base import wait_until

ROUTES = '\n[[routes]]\nkind = "*"\nsink = "main"\n'


@pytest.fixture
def filed(outbox: Outbox) -> Outbox:
    """An outbox whose sinks are in a file, so that it can change while a relay runs."""
    outbox.environment = {
        "RELAY_DATABASE": json.dumps({"url": outbox.url, "timeout": "5s"}),
        "RELAY_LOG": json.dumps({"format": "json"}),
    }
    write(outbox, main={})
    assert outbox.run_relay("apply").returncode == 0
    return outbox


def write(outbox: Outbox, **sinks: dict[str, Any]) -> None:
    """Write relay.toml: scripted sinks, unless they say otherwise."""
    lines = []
    for name, keys in sinks.items():
        own = keys if "type" in keys else {"type": "scripted", "folder": str(outbox.broker.folder), **keys}
        lines += [f"[sinks.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in own.items())]
    (outbox.folder / "relay.toml").write_text("\n".join(lines) + ROUTES)


def said(outbox: Outbox, sink: str) -> list[Any]:
    """Why each relay that runs does not serve the sink; None: it does."""
    return [waits for (waits,) in outbox.sql("select waits from relay.serving where sink = %s order by since", sink)]


def check(outbox: Outbox) -> str:
    return outbox.run_relay("status", "--check").stderr


def delivers(outbox: Outbox, sink: str) -> None:
    """A message of this sink arrives."""
    (number,) = outbox.insert(sink=sink)
    wait_until(lambda: number in outbox.broker.copies(), timeout=20, what=f"a delivery by {sink}")


NO_CA = (
    '[sinks.other.client]\n"bootstrap.servers" = "127.0.0.1:1"\n"security.protocol" = "ssl"\n"ssl.ca.location" = "ca"\n'
)
BROKEN = {
    "secret": '[sinks.other]\ntype = "redis-stream"\nurl = "redis://:${file:pw}@127.0.0.1:1/0"\n',
    "certificate": f'[sinks.other]\ntype = "kafka"\n{NO_CA}',
    "library": '[sinks.other]\ntype = "no-such-type"\n',
    "option": '[sinks.other]\ntype = "scripted"\nfolder = "."\nfolders = "x"\n',
}
NEED_NO_BROKER = (
    ["status"],
    ["dead", "list"],
    ["pause", "other", "--reason", "r"],
    ["resume", "other"],
    ["migrate", "--check"],
    ["publish", "made", "{}", "--sink", "main"],
)


@pytest.mark.parametrize("kind", sorted(BROKEN))
def test_one_that_is_broken_stops_no_other(filed: Outbox, kind: str) -> None:
    """A secret or a certificate that is not there (yet), a library or an option that is not known. The same could be
    a module of a local sink that cannot be imported. Commands that need no broker do not look at it."""
    filed.sql("insert into relay.sinks (name) values ('other')")
    file = filed.folder / "relay.toml"
    file.write_text(BROKEN[kind] + file.read_text())
    checked = filed.run_relay("config", "check")
    assert checked.returncode == 2
    assert "sinks.other" in checked.stderr
    for command in NEED_NO_BROKER if kind == "library" else NEED_NO_BROKER[:1]:
        done = filed.run_relay(*command)
        assert (done.returncode, done.stderr) == (0, ""), command
    with filed.relay() as relay:
        delivers(filed, "main")
        assert relay.healthy()
        assert relay.ready()
        (event,) = relay.events("sink is not served")
        assert event["sink"] == "other"
        assert "sinks.other" in event["reason"]
        assert 'sink "other": no relay serves it: ' in check(filed)
    refused = filed.run_relay("run", "--sink", "other")
    assert refused.returncode == 2
    assert "sinks.other" in refused.stderr


def test_a_secret_that_comes_late_is_found(filed: Outbox) -> None:
    write(filed, main={}, other={"keep_data": "${file:late}"})
    filed.sql("insert into relay.sinks (name) values ('other')")
    with filed.relay() as relay:
        wait_until(lambda: relay.events("sink is not served"), timeout=10)
        (filed.folder / "late").write_text("true")
        delivers(filed, "other")
        assert check(filed) == ""


def test_one_that_is_not_in_the_database_is_taken_up_once_it_is(filed: Outbox) -> None:
    """A deploy may start relays before `apply`; a colleague may apply his own file. Each sink waits for itself."""
    write(filed, main={}, other={})
    with filed.relay() as relay:
        delivers(filed, "main")
        (event,) = relay.events("sink is not served")
        assert event["reason"] == "it is not in the database: run relay apply"
        assert filed.run_relay("apply").returncode == 0
        delivers(filed, "other")
        assert check(filed) == ""
        write(filed, main={})
        assert filed.run_relay("apply", "--yes").returncode == 0
        wait_until(lambda: said(filed, "other") == [], timeout=15, what="the sink being given up")
        delivers(filed, "main")


@pytest.mark.parametrize("told", [True, False])
def test_a_sink_that_apply_adds_is_served_where_the_file_has_it(filed: Outbox, told: bool) -> None:
    """By SIGHUP, and by itself once `relay apply` has changed the database. A relay with an older file leaves it."""
    with filed.relay() as relay:
        delivers(filed, "main")
        if told:
            write(filed, main={"batch_messages": 3}, other={})
            relay.signal(signal.SIGHUP)
            wait_until(lambda: relay.events("sink is not served"), timeout=10)
            assert filed.run_relay("apply").returncode == 0
        else:
            filed.sql("insert into relay.sinks (name) values ('other')")
            wait_until(lambda: relay.events("configuration read again"), timeout=10)
            assert 'sink "other": no relay serves it; add it to the configuration' in check(filed)
            write(filed, main={}, other={})
            relay.signal(signal.SIGHUP)
        delivers(filed, "other")
        filed.broker.script(delay=0.5)
        filed.insert(12, sink="main")
        filed.wait_until_empty()
        if told:
            assert max(len(call.ids) for call in filed.broker.calls()) <= 3


def test_a_file_that_cannot_be_read_changes_nothing(filed: Outbox) -> None:
    """Nor does one sink's mistake, or its secret that is not there for a moment, end what is served already."""
    with filed.relay() as relay:
        write(filed, main={"keep_data": "${file:nowhere}"})
        relay.signal(signal.SIGHUP)
        wait_until(
            lambda: [one["sink"] for one in relay.events("configuration is not taken up")] == ["main"], timeout=10
        )
        delivers(filed, "main")
        (filed.folder / "relay.toml").write_text("[sinks")
        relay.signal(signal.SIGHUP)
        wait_until(lambda: len(relay.events("configuration is not taken up")) == 2, timeout=10)
        delivers(filed, "main")


def test_order_begins_and_ends_while_relays_run(filed: Outbox) -> None:
    """Where the file says the same, a relay goes over by itself; where it does not, `status --check` says so."""
    with filed.relay() as relay:
        delivers(filed, "main")
        write(filed, main={"order": "key", "shards": 4})
        assert filed.run_relay("apply").returncode == 0
        wait_until(lambda: relay.events("configuration read again"), timeout=20)
        delivers(filed, "main")
        filed.sql("update relay.sinks set shards = 0")
        wait_until(lambda: said(filed, "main") != [None], timeout=15)
        assert 'sink "main": no relay serves it: ' in check(filed)
        assert 'the configuration has order = "key", the database keeps no order' in check(filed)
        write(filed, main={})
        relay.signal(signal.SIGHUP)
        delivers(filed, "main")
        filed.sql("update relay.sinks set shards = 4")
        wait_until(lambda: 'lacks: order = "key", shards = 4' in check(filed), timeout=15)


def elsewhere(outbox: Outbox, name: str) -> Path:
    folder = outbox.folder / name
    folder.mkdir(exist_ok=True)
    return folder


def test_relays_that_disagree_where_a_sink_is(filed: Outbox) -> None:
    """The later one waits until the earlier one ends: a rolling change of a URL shares no messages out."""
    there = elsewhere(filed, "there")
    with filed.relay() as old:
        delivers(filed, "main")
        write(filed, main={"folder": str(there), "place": "there"})
        with filed.relay() as new:
            wait_until(lambda: new.events("sink is not served"), timeout=10)
            (event,) = new.events("sink is not served")
            assert "delivers it to scripted here" in event["reason"]
            assert "this one would deliver it to scripted there" in event["reason"]
            assert 'sink "main": relay ' in check(filed)
            for _ in range(5):
                delivers(filed, "main")
            assert not (there / "delivered.jsonl").exists()
            old.signal(signal.SIGTERM)
            assert old.exit_code() == 0
            wait_until(lambda: said(filed, "main") == [None], timeout=15)
            assert check(filed) == ""
            filed.insert(5)
            filed.wait_until_empty()
            assert len((there / "delivered.jsonl").read_text().splitlines()) == 5


def test_a_sink_moves_where_every_relay_is_told(filed: Outbox) -> None:
    """The procedure of docs/operations.md: change the file, then SIGHUP to each relay. Nothing is sent to both."""
    there = elsewhere(filed, "there")
    with filed.relay() as first, filed.relay() as second:
        delivers(filed, "main")
        write(filed, main={"folder": str(there), "place": "there"})
        first.signal(signal.SIGHUP)
        wait_until(lambda: first.events("sink is not served"), timeout=10)
        delivers(filed, "main")
        second.signal(signal.SIGHUP)
        wait_until(lambda: said(filed, "main") == [None, None], timeout=20)
        filed.insert(20)
        filed.wait_until_empty()
        assert len((there / "delivered.jsonl").read_text().splitlines()) == 20


def test_a_relay_that_was_killed_keeps_nobody_waiting_for_long(filed: Outbox) -> None:
    with filed.relay() as old:
        delivers(filed, "main")
        old.kill()
    status = filed.run_relay("status")
    assert "0 relays" in status.stdout
    filed.sql("update relay.relays set seen_at = seen_at - interval '30 seconds'")
    write(filed, main={"folder": str(elsewhere(filed, "there")), "place": "there"})
    with filed.relay():
        wait_until(lambda: said(filed, "main") == [None], timeout=10)


def test_nothing_to_serve(outbox: Outbox) -> None:
    outbox.environment = {"RELAY_DATABASE_URL": outbox.url}
    done = outbox.run_relay("run")
    assert done.returncode == 2
    assert "there is no relay.toml here (relay init writes one, --config names another)" in done.stderr
    (outbox.folder / "relay.toml").write_text("")
    done = outbox.run_relay("run")
    assert done.stderr == "Error: expected sinks to serve under [sinks.NAME], got none: relay.toml\n"


def test_a_rotated_password_of_the_database(filed: Outbox) -> None:
    """Read for each new connection; as is every other file that the configuration refers to."""
    name = f"rotated_{os.getpid()}"
    filed.sql(f"create role {name} login password 'first' in role relay_worker")
    try:
        (filed.folder / "pw").write_text("first\n")
        host = filed.url.partition("@")[2] or filed.url.partition("://")[2]
        url = f"postgresql://{name}:${{file:pw}}@{host}"
        with filed.relay(url=url):
            delivers(filed, "main")
            filed.sql(f"alter role {name} password 'second'")
            (filed.folder / "pw").write_text("second\n")
            filed.end_sessions()
            delivers(filed, "main")
    finally:
        filed.sql(f"drop role {name}")


def test_a_rotated_password_of_a_broker(filed: Outbox, redis_url: str, redis_client: redis.Redis) -> None:
    """Without a restart and without a signal: a connection that is lost is made with what the file says then."""
    user = f"rotated{os.getpid()}"
    redis_client.execute_command("ACL", "SETUSER", user, "on", ">first", "~*", "+@all")
    try:
        (filed.folder / "pw").write_text("first\n")
        host = redis_url.partition("://")[2]
        write(filed, main={"type": "redis-stream", "url": f"redis://{user}:${{file:pw}}@{host}", "stream": user})

        def arrives(count: int) -> None:
            filed.insert(sink="main")
            wait_until(lambda: redis_client.xlen(user) == count, timeout=20, what="a delivery")

        with filed.relay() as relay:
            arrives(1)
            redis_client.execute_command("ACL", "SETUSER", user, "resetpass", ">second")
            redis_client.execute_command("CLIENT", "KILL", "USER", user)
            filed.insert(sink="main")
            wait_until(lambda: relay.events("sink is unwell"), timeout=20)
            (filed.folder / "pw").write_text("second\n")
            wait_until(lambda: redis_client.xlen(user) == 2, timeout=20, what="the delivery after the rotation")
            arrives(3)
    finally:
        redis_client.execute_command("ACL", "DELUSER", user)
        redis_client.delete(user)
