-- How many messages wait for each unavailable destination, counted up to a limit. Where its sink has no other one they
-- are ready.
select d.sink, d.destination, d.reason, extract(epoch from clock_timestamp() - d.since)::float8,
       case when d.retry_at is null
            then (select count(*) from (select from relay.outbox o
                                         where o.sink = d.sink and o.run_at is null limit %(most)s) ready)
            else (select count(*) from (select from relay.outbox o
                                         where o.sink = d.sink and o.destination = d.destination and o.run_at = 'infinity'
                                         limit %(most)s) parked)
               + (select count(*)
                    from (select
                            from relay.stuck_keys k
                           cross join lateral (
                                 select from relay.outbox o
                                  where o.sink = k.sink and relay.hash_of(o.key, null) = k.key_hash and o.key = k.key
                                    and o.run_at = 'infinity'
                                  limit %(most)s) waiting
                           where k.sink = d.sink and k.destination = d.destination
                           limit %(most)s) of_keys)
       end
  from relay.destinations d
 where d.failures > 0 and exists (select from relay.sinks s where s.name = d.sink)
 order by d.sink, d.since, d.destination
 limit %(destinations)s
