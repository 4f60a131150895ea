"""Large messages: a claim is bounded by bytes, and whoever does not send them does not read them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from relay.admin.status import read_status
from relay.database.connection import Database
from relay.process.store import Store
from tests.harness.outbox import Outbox

MIB = 1024 * 1024


def resident(pid: int, key: str) -> int:
    """Bytes: `VmRSS` is what it has now, `VmHWM` the most that it ever had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))


def insert_large(outbox: Outbox, count: int, size: int) -> None:
    """Messages whose bodies no compression makes smaller."""
    outbox.sql(
        "insert into relay.outbox (kind, body)"
        " select 'large', body from generate_series(1, %s),"
        " (select string_agg(sha512((random() || n::text)::bytea), ''::bytea) as body"
        "    from generate_series(1, %s) n) random_bytes",
        count,
        size // 64,
    )


def test_memory_is_bounded_by_bytes(outbox: Outbox) -> None:
    outbox.configure(batch_messages=500, batch_bytes="4MiB", keep_data=False, send_timeout="5s", lease="20s")
    insert_large(outbox, 512, MIB // 4)
    insert_large(outbox, 4, 8 * MIB)
    with outbox.relay() as relay:
        outbox.wait_until_empty(timeout=25)
        most = resident(relay.pid, "VmHWM")
        small = outbox.insert(1)
        outbox.wait_until_empty()
    calls = outbox.broker.calls()
    assert max(len(call.ids) for call in calls) <= 16, "4 MiB in pieces of 256 KiB"
    assert len([call for call in calls if len(call.ids) == 1]) >= 4, "what is larger than the limit goes alone"
    assert len(outbox.broker.copies()) == 516 + len(small)
    assert most < 200 * MIB


def test_who_does_not_send_reads_no_payload(outbox: Outbox) -> None:
    outbox.configure()
    insert_large(outbox, 20, MIB // 4)
    token = "00000000-0000-4000-8000-000000000001"
    outbox.sql(f"update relay.outbox set claim_token = '{token}', attempts = 1 where id % 2 = 0")
    outbox.sql("update relay.outbox set run_at = now() - interval '1 s' where id % 2 = 1")
    outbox.sql(
        "insert into relay.claims (token, sink, worker, claimed_at, locked_until, ids)"
        f" select '{token}', 'main', 'gone', now(), now() - interval '1 s', array_agg(id)"
        "   from relay.outbox where claim_token is not null"
    )
    before = payload_pages(outbox)
    with closing(Database(outbox.url)) as database:
        store = Store(database)
        assert read_status(database).sinks[0].claimed == 10
        assert store.reap() == ("main", "gone", 10)
        assert store.promote(100) == 10
        store.next_due()
    assert payload_pages(outbox) == before
    assert outbox.count("octet_length(body) > 0 and md5(body) <> ''") == 20
    assert payload_pages(outbox) > before, "this is how reading them would have shown"


def payload_pages(outbox: Outbox) -> int:
    """Pages of large values that were read so far, by sessions that have ended."""
    found: int = outbox.sql(
        "select toast_blks_read + toast_blks_hit from pg_statio_all_tables where relid = 'relay.outbox'::regclass"
    )[0][0]
    return found
