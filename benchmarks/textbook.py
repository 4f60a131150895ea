"""The yardstick: the loop of the textbook, with a status column, partial indexes and `UPDATE … FROM` a CTE.

Written as such loops are written: jsonb parsed and dumped, one job a push in a pipeline, done rows marked.
"""

from __future__ import annotations

import json
import time
from typing import Any
from uuid import uuid4

import psycopg
import redis

BATCH = 1000

SCHEMA = """
create table if not exists textbook (
  id bigint generated always as identity primary key,
  kind text not null, payload jsonb not null,
  status text not null default 'pending', run_at timestamptz not null default now(),
  attempts int not null default 0, locked_by text, locked_at timestamptz,
  created_at timestamptz not null default now(), finished_at timestamptz
);
create index if not exists textbook_pending on textbook (run_at, id) where status = 'pending';
create index if not exists textbook_running on textbook (locked_at) where status = 'running';
truncate textbook
"""

WRITE = """
insert into textbook (kind, payload)
select 'SendReceipt', jsonb_build_array(n, repeat('x', %s)) from generate_series(1, %s) n
"""

CLAIM = """
with picked as (
  select id from textbook where status = 'pending' and run_at <= now()
   order by run_at, id limit %s for update skip locked
)
update textbook t set status = 'running', locked_by = %s, locked_at = now(), attempts = attempts + 1
  from picked where t.id = picked.id
returning t.id, t.kind, t.payload
"""

SETTLE = "update textbook set status = 'done', finished_at = now() where id = any(%s)"


def write(conn: psycopg.Connection[Any], messages: int, payload_bytes: int) -> None:
    conn.execute(SCHEMA)
    conn.execute(WRITE, [payload_bytes - 15, messages])


def claim(conn: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    return conn.execute(CLAIM, [BATCH, "textbook"]).fetchall()


def settle(conn: psycopg.Connection[Any], rows: list[tuple[Any, ...]]) -> None:
    conn.execute(SETTLE, [[row[0] for row in rows]])


def drain_to_sidekiq(url: str, broker: redis.Redis) -> None:
    """Claim, push, mark, until nothing is pending."""
    with psycopg.connect(url, autocommit=True, application_name="textbook") as conn:
        while rows := claim(conn):
            pipeline = broker.pipeline(transaction=False)
            pipeline.sadd("queues", "default")
            for _, kind, arguments in rows:
                job = {
                    "class": kind, "args": arguments, "queue": "default", "jid": uuid4().hex[:24], "retry": True,
                    "created_at": time.time(), "enqueued_at": time.time(),
                }  # fmt: skip
                pipeline.lpush("queue:default", json.dumps(job))
            pipeline.execute()
            settle(conn, rows)


def drain_to_nothing(conn: psycopg.Connection[Any]) -> None:
    """Claim and mark, until nothing is pending."""
    while rows := claim(conn):
        settle(conn, rows)
