"""Kafka behind the whole relay: what SQL and Python write, and what the log says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from relay import publish
from tests.command import Command
from tests.servers.base import LOCALHOST, free_port, wait_until
from tests.servers.kafka import KafkaCluster, mock_cluster, new_cluster, new_name

CONFIGURATION = """
[log]
format = "json"
level = "{level}"

[sinks.orders]
type = "kafka"
topic = "orders"
client = {{ "bootstrap.servers" = "{bootstrap}"{more} }}

[[routes]]
kind = "*"
sink = "orders"
"""


def test_tombstone_in_plain_sql_and_in_python(relay_database_url: str, tmp_path: Path) -> None:
    relay = Command(relay_database_url, tmp_path)
    with mock_cluster() as bootstrap:
        relay.configure(CONFIGURATION.format(level="info", bootstrap=bootstrap, more=""))
        relay("apply")
        with psycopg.connect(relay_database_url) as conn:
            conn.execute(
                """
                insert into relay.outbox (kind, key, body, headers)
                values ('order.deleted', '42', '', '{"kafka.tombstone": true}')
                """
            )
            publish(conn, "order.deleted", b"", key="43", headers={"kafka.tombstone": True})
        relay("run", "--drain")
        found = KafkaCluster([], bootstrap).read("orders")
    assert {(record.key, record.value) for record in found} == {(b"42", None), (b"43", None)}


@contextmanager
def running(relay: Command, log: Path) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """A relay that runs; yields what gives its lines, each of which must be a JSON object."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "relay", "run"],
            cwd=relay.folder,
            env={**os.environ, "RELAY_DATABASE_URL": relay.url},
            stderr=file,
        )
        try:
            yield lambda: [json.loads(line) for line in log.read_text().splitlines(keepends=True) if line[-1] == "\n"]
        finally:
            process.terminate()
            try:
                process.wait(30)
            finally:
                process.kill()


@pytest.mark.parametrize("exactly_once", ["false", "true"])
def test_every_line_of_librdkafka_is_a_line_of_the_log(
    relay_database_url: str, tmp_path: Path, exactly_once: str
) -> None:
    """With `debug`, all its clients talk: those that only check options, producers, consumers and those that ask.

    In the same way its complaints about a broker that is down would come several times a second, as errors.
    """
    relay = Command(relay_database_url, tmp_path)
    with mock_cluster() as bootstrap:
        text = CONFIGURATION.format(level="debug", bootstrap=bootstrap, more=', "debug" = "all"')
        relay.configure(text.replace('topic = "orders"', f'topic = "orders"\nexactly_once = {exactly_once}'))
        relay("apply")
        relay("publish", "order.created", "{}")
        with running(relay, tmp_path / "log") as lines:
            wait_until(lambda: sum("[outbox-relay-orders#" in line["event"] for line in lines()) > 20, timeout=40)
    assert Counter(line["level"] for line in lines())["debug"] > 20


@pytest.mark.parametrize("exactly_once", ["false", "true"])
def test_topic_that_is_missing_is_told_and_waited_for(
    kafka: KafkaCluster, relay_database_url: str, tmp_path: Path, exactly_once: str
) -> None:
    relay = Command(relay_database_url, tmp_path)
    good, missing = kafka.new_topic(), new_name()
    text = CONFIGURATION.format(level="info", bootstrap=kafka.bootstrap, more="")
    relay.configure(text.replace('topic = "orders"', f'topic = "{{kind}}"\nexactly_once = {exactly_once}'))
    relay("apply")
    with psycopg.connect(relay_database_url, autocommit=True) as conn, running(relay, tmp_path / "log") as lines:
        conn.execute("insert into relay.outbox (kind, payload) select %s, '1' from generate_series(1, 300)", [missing])
        wait_until(
            lambda: conn.execute("select 1 from relay.destinations where destination = %s", [missing]).fetchone()
        )
        conn.execute("insert into relay.outbox (kind, payload) select %s, '1' from generate_series(1, 10)", [good])
        wait_until(lambda: len(kafka.read(good)) == 10, timeout=20)
        wait_until(lambda: any(missing in str(line) for line in lines()), timeout=20)
        kafka.new_topic(missing)
        wait_until(lambda: conn.execute("select count(*) from relay.outbox").fetchone() == (0,), timeout=40)
        assert conn.execute("select count(*) from relay.dead").fetchone() == (0,)
    assert len(kafka.read(missing)) == 300


def test_broker_that_is_down_does_not_fill_the_log(relay_database_url: str, tmp_path: Path) -> None:
    relay = Command(relay_database_url, tmp_path)
    relay.configure(CONFIGURATION.format(level="info", bootstrap=f"{LOCALHOST}:{free_port()}", more=""))
    relay("apply")
    relay("publish", "order.created", "{}")
    with running(relay, tmp_path / "log") as lines:
        wait_until(lambda: any("refused" in line["event"] for line in lines()), timeout=30)
        time.sleep(3)  # meanwhile each connection fails several times
        found = lines()
    assert sum("[outbox-relay-orders#" in line["event"] for line in found) <= 4


FROZEN = """
[log]
format = "json"

[sinks.plain]
type = "kafka"
topic = "{plain}"
lease = "6s"
send_timeout = "3s"
client = {{ "bootstrap.servers" = "{bootstrap}", "queue.buffering.max.messages" = 100 }}

[sinks.once]
type = "kafka"
topic = "{once}"
exactly_once = true
lease = "6s"
send_timeout = "3s"
client = {{ "bootstrap.servers" = "{bootstrap}", "queue.buffering.max.messages" = 100 }}

[[routes]]
kind = "*"
sink = "plain"

[[routes]]
kind = "*"
sink = "once"
"""


@pytest.mark.full
def test_broker_that_is_frozen_for_longer_than_a_lease(relay_database_url: str, tmp_path: Path) -> None:
    """Claims are larger than librdkafka's queue. No attempt is used up, no lease is lost, and only what was in that
    queue may arrive twice; in transactions nothing does.

    In the same way the relay's own queue, not the broker, could be what is full.
    """
    relay = Command(relay_database_url, tmp_path)
    with new_cluster() as own, psycopg.connect(relay_database_url, autocommit=True) as conn:
        plain, once = own.new_topic(), own.new_topic()
        relay.configure(FROZEN.format(plain=plain, once=once, bootstrap=own.bootstrap))
        relay("apply")
        server = own.brokers[0].server
        assert server
        insert = (
            "insert into relay.outbox (kind, payload) select 'a', n::text::json from generate_series(%s::int, %s) n"
        )
        with running(relay, tmp_path / "log") as lines:
            conn.execute(insert, [1, 50])
            wait_until(lambda: conn.execute("select count(*) from relay.outbox").fetchone() == (0,), timeout=30)
            server.freeze()
            try:
                conn.execute(insert, [51, 550])
                time.sleep(9)
                late = conn.execute(
                    "select count(*) from relay.claims where locked_until < clock_timestamp()"
                ).fetchone()
                assert late == (0,)
            finally:
                server.thaw()
            wait_until(lambda: conn.execute("select count(*) from relay.outbox").fetchone() == (0,), timeout=60)
        assert conn.execute("select count(*) from relay.dead").fetchone() == (0,)
        assert not [line for line in lines() if line["event"] in {"claim lost", "message is dead"}]
        values = [record.value for record in own.read(once)]
        assert len(values) == len(set(values)) == 550
        values = [record.value for record in own.read(plain)]
        assert len(set(values)) == 550
        assert len(values) <= 550 + 200
