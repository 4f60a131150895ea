-- A destination is unavailable. The wait until the next probe grows when a probe failed, not with each message that comes
-- to wait; it starts anew where some messages were delivered meanwhile. What was held back (not refused) changes nothing,
-- but a row there must be. Where nothing is parked the circuit probes.
insert into relay.destinations as d (sink, destination, reason, retry_at)
values (%(sink)s, %(destination)s, %(reason)s,
        case when %(parked)s then clock_timestamp() + make_interval(secs => %(base)s::float8 * (0.5 + random() / 2)) end)
    on conflict (sink, destination) do update
   set reason = case when %(refused)s then excluded.reason else d.reason end,
       failures = case when not %(refused)s then d.failures
                       when d.failures = 0 or %(delivered)s then 1
                       when %(probe)s then least(d.failures + 1, 60)
                       else d.failures end,
       retry_at = case when d.retry_at is null then excluded.retry_at
                       when not %(refused)s then d.retry_at
                       when d.failures = 0 or %(delivered)s
                       then clock_timestamp() + make_interval(secs => %(base)s::float8 * (0.5 + random() / 2))
                       when %(probe)s then clock_timestamp() + make_interval(secs =>
                         least(%(max)s::float8, %(base)s::float8 * power(2, least(d.failures, 60))) * (0.5 + random() / 2))
                       else d.retry_at end
