"""A relay whose role has the rights of relay_worker and no other; and what it says when one is taken away."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import errors

from tests.harness.outbox import Outbox
from tests.servers.base import wait_until


@pytest.fixture
def role(outbox: Outbox) -> Iterator[str]:
    name = f"worker_{outbox.url.rpartition('_')[2]}"
    outbox.sql(f"create role {name} login in role relay_worker")
    yield name
    outbox.sql(f"drop role {name}")


def as_role(outbox: Outbox, role: str) -> str:
    return re.sub(r"//[^@]*@", f"//{role}@", outbox.url)


def test_the_group_role_is_enough_for_all_that_a_relay_does(outbox: Outbox, role: str) -> None:
    outbox.configure(max_attempts=3)
    outbox.broker.script(kinds={"bad": "retry", "worse": "reject"})
    with outbox.relay(url=as_role(outbox, role)) as relay:
        outbox.insert(50)
        outbox.insert(3, kind="bad")
        outbox.insert(2, kind="worse")
        outbox.insert_timed(0.5)
        outbox.wait_until_empty()
        assert [event for event in relay.events() if event["level"] == "error"] == []
        wait_until(lambda: relay.metric("relay_listener_up") == 1)
    assert outbox.count(table="dead") == 5


def test_it_cannot_change_the_schema_or_read_anything_else(outbox: Outbox, role: str) -> None:
    outbox.sql("create table public.secrets (id int)")
    with psycopg.connect(as_role(outbox, role), autocommit=True) as connection:
        for forbidden in (
            "alter table relay.outbox add column x int",
            "create table relay.more ()",
            "drop table relay.dead",
            "truncate relay.outbox",
            "insert into relay.migrations (version, name) values (99, 'x')",
            "select from public.secrets",
        ):
            with pytest.raises(errors.InsufficientPrivilege):
                connection.execute(forbidden.encode())


def test_a_role_without_the_schema_is_told_so_at_once(outbox: Outbox, role: str) -> None:
    outbox.configure()
    outbox.sql(f"revoke relay_worker from {role}")
    outbox.configure(applied=False, database={"url": as_role(outbox, role)})
    done = outbox.run_relay("run", timeout=10)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "permission denied" in done.stderr
    assert "relay_worker" in done.stderr


@pytest.mark.parametrize("order", ["none", "key"])
def test_a_right_that_is_taken_away_and_given_back(outbox: Outbox, role: str, order: str) -> None:
    outbox.configure(order=order, lease="20s", send_timeout="5s")
    outbox.broker.script(hang=True, kinds={"made": "retry"})
    with outbox.relay(url=as_role(outbox, role)) as relay:
        ids = outbox.insert(10, key="k")
        wait_until(outbox.broker.calls)
        outbox.sql("revoke update on relay.outbox from relay_worker")
        outbox.broker.script()
        outbox.broker.script(kinds={"made": "retry"})
        wait_until(lambda: not relay.ready(), timeout=5)
        later = outbox.insert(10, key="k")
        time.sleep(2)
        assert relay.healthy()
        assert len(outbox.broker.calls()) == 1, "what cannot be settled must not be sent again"
        (refused,) = relay.events("database refused")
        assert "permission denied for table outbox" in refused["reason"]
        assert "grant relay_worker" in refused["reason"]
        outbox.broker.script()
        outbox.sql("grant update on relay.outbox to relay_worker")
        wait_until(relay.ready, timeout=10)
        outbox.wait_until_empty()
    assert outbox.broker.copies() == dict.fromkeys(ids + later, 1)
