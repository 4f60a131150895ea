-- Destinations (queues, topics, streams) that are unavailable while the rest of their sink works, and what waits for them.
--
-- A waiting message leaves the ready index once (run_at is infinity) and names its destination. A probe lets a few of them
-- go; when one is delivered, the others follow in batches that grow. A released message keeps the destination's name, so
-- a relay sends it although it holds back other messages for the same destination. A keyed message of an ordered sink waits
-- by its key instead (relay.stuck_keys), and the key names the destination.

alter table relay.outbox add column destination text;
comment on column relay.outbox.destination is
  'Unavailable destination that the message waits for (run_at is infinity), or that it probes (run_at is null).';
create index outbox_held on relay.outbox (sink, destination, id) where run_at = 'infinity' and destination is not null;

alter table relay.stuck_keys add column destination text;
comment on column relay.stuck_keys.destination is 'Unavailable destination of its first message; null = the message itself failed.';
create index stuck_keys_held on relay.stuck_keys (sink, destination, key_hash) where destination is not null;

create table relay.destinations (
  sink         text not null,
  destination  text not null check (octet_length(destination) <= 2000),
  reason       text not null,
  since        timestamptz not null default clock_timestamp(),
  retry_at     timestamptz,
  failures     integer not null default 1,
  primary key (sink, destination)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, vacuum_truncate = off);
comment on table relay.destinations is 'Unavailable queues, topics and streams of sinks.';
comment on column relay.destinations.sink is 'Sink.';
comment on column relay.destinations.destination is 'Queue, topic or stream, as the sink names it.';
comment on column relay.destinations.reason is 'What the broker said the last time.';
comment on column relay.destinations.since is 'Since when it is unavailable.';
comment on column relay.destinations.retry_at is
  'When the next probe is let go; null = it is the only one of its sink: messages stay ready, and the circuit probes.';
comment on column relay.destinations.failures is 'Probes that failed in a row; 0 = it works again, and waiting messages are let go.';

do $$
begin
  if exists (select from pg_roles where rolname = 'relay_worker') then
    grant select, insert, update, delete on relay.destinations to relay_worker;
  end if;
end
$$;
