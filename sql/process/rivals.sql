-- Where other relays deliver their sinks. A relay whose session ended may still be there, so only time tells.
select s.name, r.worker, s.said ->> 'destination', (s.said ->> 'since')::float8, s.said ->> 'waits'
  from relay.relays r
 cross join lateral jsonb_each(r.sinks) as s (name, said)
 where r.worker <> %(worker)s
   and r.seen_at > clock_timestamp() - interval '30 seconds'
   and s.said ->> 'destination' is not null
