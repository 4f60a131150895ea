-- Whether nothing of these sinks is due or claimed, or waits for an unavailable destination.
select not exists (select from relay.outbox o where o.sink = any(%(sinks)s) and o.run_at is null)
   and not exists (select from relay.outbox o where o.run_at <= now() and o.run_at < 'infinity' and o.sink = any(%(sinks)s))
   and not exists (select from relay.stuck_keys k where k.retry_at <= now() and k.sink = any(%(sinks)s))
   and not exists (select from relay.claims c where c.sink = any(%(sinks)s))
   and not exists (select from relay.outbox o
                    where o.sink = any(%(sinks)s) and o.run_at = 'infinity' and o.destination is not null)
   and not exists (select from relay.stuck_keys k where k.sink = any(%(sinks)s) and k.destination is not null)
