-- A locked destination of which messages were let go: their settle says how it goes on. Should somebody remove them by
-- hand, others follow in a while. One that nothing waits for any more is forgotten, unless its sink's circuit probes it.
with waits as (
  select exists (select from relay.outbox o
                  where o.sink = %(sink)s and o.destination = %(destination)s and o.run_at = 'infinity')
      or exists (select from relay.stuck_keys k where k.sink = %(sink)s and k.destination = %(destination)s) as something
), moved as (
  update relay.destinations
     set retry_at = clock_timestamp() + interval '1 minute', failures = case when %(works)s then 0 else failures end
   where sink = %(sink)s and destination = %(destination)s and (%(let_go)s > 0 or (select something from waits))
  returning destination
)
delete from relay.destinations
 where sink = %(sink)s and destination = %(destination)s and not exists (select from moved)
