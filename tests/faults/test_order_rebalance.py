"""One relay dies, one freezes past its lease and wakes, one joins: nobody believes to own what another one owns."""

from __future__ import annotations

import signal
import time

from tests.faults.test_order_two_workers import first_copies
from tests.harness.outbox import Outbox, Relay
from tests.servers.base import wait_until

KEYS = 64
MESSAGES = 20
LEASE_S = 2.0

LOG = """
  create table claim_log (number bigint generated always as identity, shard smallint, token uuid, begins boolean)
"""
NOTE = """
  create function note() returns trigger language plpgsql as $$
  begin
    insert into public.claim_log (shard, token, begins)
    select given, old.token, false from (select unnest(old.shards) except select unnest(new.shards)) gone (given)
    union all
    select taken, new.token, true from (select unnest(new.shards) except select unnest(old.shards)) come (taken);
    return null;
  end $$
"""
TRIGGER = "create trigger note after insert or update or delete on relay.claims for each row execute function note()"


def frozen_with_a_claim(outbox: Outbox, relay: Relay) -> bool:
    """Stop a relay; let it go on where it is not just sending: between two transactions, with a claim it knows of."""
    relay.signal(signal.SIGSTOP)
    its = f"%:{relay.pid}:%"
    busy = outbox.sql("select pid from pg_stat_activity where application_name like %s and state <> 'idle'", its)
    held = {token for (token,) in outbox.sql("select token::text from relay.claims where worker like %s", its)}
    if not busy and held & {call.token for call in outbox.broker.calls()}:
        return True
    relay.signal(signal.SIGCONT)
    return False


def test_claims_of_a_shard_never_overlap(outbox: Outbox) -> None:
    outbox.configure(order="key", shards=16, batch_messages=40, lease="2s")
    for statement in (LOG, NOTE, TRIGGER):
        outbox.sql(statement)
    outbox.broker.script(each=0.01)
    for _ in range(MESSAGES):
        outbox.sql(
            "insert into relay.outbox (kind, key, payload)"
            " select 'made', 'key-' || g, '{}' from generate_series(1, %s) g",
            KEYS,
        )
    with outbox.relay(timeout=60) as dies, outbox.relay(timeout=60) as freezes, outbox.relay(timeout=60):
        pids = {dies.pid, freezes.pid}
        wait_until(lambda: pids <= {call.pid for call in outbox.broker.calls()})
        dies.kill()
        wait_until(lambda: frozen_with_a_claim(outbox, freezes))
        frozen_at = time.time()
        with outbox.relay(timeout=60):
            wait_until(lambda: time.time() > frozen_at + LEASE_S + 2.0, timeout=10)
            claimed = {call.token for call in outbox.broker.calls() if call.pid == freezes.pid}
            freezes.signal(signal.SIGCONT)
            woken_at = time.time()
            outbox.wait_until_empty(60)
            lost = freezes.metric("relay_lease_lost_total")
    late = [d for d in outbox.broker.deliveries() if d.token in claimed and d.at > woken_at + 0.1]
    assert late == [], "what was claimed before is not sent any more"
    assert lost == 1
    holders: dict[int, str | None] = {}
    for shard, token, begins in outbox.sql("select shard, token::text, begins from claim_log order by number"):
        assert holders.get(shard) == (None if begins else token)
        holders[shard] = token if begins else None
    deliveries = outbox.broker.deliveries()
    assert len({d.id for d in deliveries}) == KEYS * MESSAGES
    assert len({(d.id, d.message_id) for d in deliveries}) == KEYS * MESSAGES
    for ids in first_copies(deliveries).values():
        assert ids == sorted(ids)
