-- Relays that run: what they are and what they say of their sinks.
select worker, host, version, extract(epoch from clock_timestamp() - started_at)::float8,
       extract(epoch from clock_timestamp() - seen_at)::float8, sinks::text
  from relay.live_relays
 order by started_at, worker
