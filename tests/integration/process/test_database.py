"""A database that restarts, refuses, times out or does not fit."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.harness.outbox import Outbox
from tests.harness.scripted import ScriptedBroker
from tests.servers.base import wait_until
from tests.servers.postgres import migrate, new_cluster, with_database

pytestmark = pytest.mark.full


@pytest.fixture
def role(outbox: Outbox) -> Iterator[str]:
    """A role of this test's own that relays may log in as; `outbox` then names it in its configuration."""
    name = f"test_{outbox.url.rpartition('_')[2]}"
    outbox.sql(f"create role {name} login in role relay_worker")
    yield name
    outbox.sql(f"drop role {name}")


def as_role(outbox: Outbox, role: str) -> str:
    return re.sub(r"//[^@]*@", f"//{role}@", outbox.url)


def test_a_restart_of_the_database_while_sending(tmp_path: Path) -> None:
    folder = tmp_path / "broker"
    folder.mkdir()
    with new_cluster() as cluster:
        outbox = Outbox(with_database(cluster.url(), "postgres"), tmp_path, ScriptedBroker(folder))
        with cluster.run() as server:
            migrate(outbox.url)
            outbox.configure(batch_messages=50, lease="20s", database={"timeout": "2s"})
            outbox.broker.script(hang=True)
            stack = outbox.relay()
            relay = stack.__enter__()
            try:
                ids = outbox.insert(120)
                wait_until(outbox.broker.calls)
                server.kill()
            except BaseException:
                stack.__exit__(None, None, None)
                raise
        try:
            outbox.broker.script()
            wait_until(lambda: not relay.ready(), timeout=5)
            assert relay.healthy()
            time.sleep(3)
            with cluster.run():
                wait_until(relay.ready, timeout=10)
                outbox.wait_until_empty(timeout=10)
                assert relay.metric("relay_lease_lost_total") == 0
                stack.__exit__(None, None, None)
        except BaseException:
            stack.__exit__(None, None, None)
            raise
    assert outbox.broker.tries() == dict.fromkeys(ids, 1)


def test_every_session_is_terminated_again_and_again(outbox: Outbox) -> None:
    outbox.configure(batch_messages=10, workers=2)
    outbox.broker.script(each=0.005)
    with outbox.relay() as one, outbox.relay() as other:
        ids = outbox.insert(600)
        for _ in range(15):
            time.sleep(0.2)
            outbox.end_sessions()
        outbox.wait_until_empty()
        assert one.healthy()
        assert other.healthy()
    assert outbox.broker.copies() == dict.fromkeys(ids, 1)
    assert outbox.count(table="dead") == 0


def test_a_read_only_phase_is_survived(outbox: Outbox, role: str) -> None:
    outbox.configure(batch_messages=10, lease="20s")
    database = outbox.url.rpartition("/")[2]
    outbox.broker.script(hang=True)
    with outbox.relay(url=as_role(outbox, role)) as relay:
        ids = outbox.insert(10)
        wait_until(outbox.broker.calls)
        outbox.sql(f"alter role {role} in database {database} set default_transaction_read_only = on")
        outbox.end_sessions()
        outbox.broker.script()
        wait_until(lambda: not relay.ready(), timeout=5)
        time.sleep(3)
        outbox.sql(f"alter role {role} in database {database} reset default_transaction_read_only")
        later = outbox.insert(5)
        outbox.wait_until_empty(timeout=12)
        assert relay.ready()
    assert outbox.broker.tries() == dict.fromkeys(ids + later, 1)


def test_a_short_statement_timeout_of_the_role_only_costs_time(outbox: Outbox, role: str) -> None:
    outbox.configure(batch_messages=10)
    outbox.sql(f"alter role {role} set statement_timeout = '200ms'")
    with outbox.relay(url=as_role(outbox, role)) as relay:
        with psycopg.connect(outbox.url) as blocker:
            blocker.execute("lock table relay.claims in access exclusive mode")
            ids = outbox.insert(25)
            wait_until(lambda: not relay.ready(), timeout=5)
            time.sleep(1.5)
            assert relay.healthy()
            assert len(relay.events("database refused")) < 4, "one line for one trouble"
        outbox.wait_until_empty(timeout=10)
        wait_until(relay.ready, timeout=5)
    assert outbox.broker.copies() == dict.fromkeys(ids, 1)
    assert outbox.count("attempts > 1") == 0


def test_settings_of_the_role_change_nothing(outbox: Outbox, role: str) -> None:
    """Another schema first, a decoy in it, another zone, another encoding, other formats."""
    outbox.configure()
    outbox.sql("create schema decoy")
    outbox.sql("create table decoy.outbox (id bigint)")
    for setting in (
        "search_path = decoy, public",
        "timezone = 'Asia/Kathmandu'",
        "client_encoding = 'LATIN1'",
        "datestyle = 'SQL, DMY'",
        "intervalstyle = 'iso_8601'",
        "bytea_output = 'escape'",
        "standard_conforming_strings = off",
        "default_transaction_isolation = 'serializable'",
        "extra_float_digits = -10",
        "statement_timeout = '4s'",
        "idle_session_timeout = '900ms'",
    ):
        outbox.sql(f"alter role {role} set {setting}")
    with outbox.relay(url=as_role(outbox, role)):
        (odd,) = outbox.insert(payload='{"é": "€ 😀"}', key="zoë 😀")
        outbox.insert_timed(1.0)
        time.sleep(2.5)
        outbox.insert(5)
        outbox.wait_until_empty(timeout=5)
    first, later = outbox.broker.deliveries()[:2]
    assert first.id == odd
    assert first.data.encode("latin-1").decode() == '{"é": "€ 😀"}'
    assert first.key == "zoë 😀"
    assert -0.01 < later.late < 1.1


def test_a_database_without_the_schema_is_refused(outbox: Outbox) -> None:
    outbox.configure(applied=False)
    outbox.sql("drop schema relay cascade")
    assert refused(outbox) == 'Error: there is no schema "relay"; run: relay migrate\n'


def test_a_newer_schema_is_refused(outbox: Outbox) -> None:
    outbox.configure()
    outbox.sql("insert into relay.migrations (version, name) values (9999, 'from the future')")
    assert "newer than this release" in refused(outbox)


def refused(outbox: Outbox) -> str:
    """What `relay run` says before it ends with 1."""
    started = time.monotonic()
    done = outbox.run_relay("run", timeout=20)
    assert done.returncode == 1, done.stderr
    assert time.monotonic() - started < 10
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""
    return done.stderr
