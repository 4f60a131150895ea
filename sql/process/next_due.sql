-- Seconds until the next scheduled message is due, or the next stuck key.
select extract(epoch from least(
         (select min(run_at) from relay.outbox
           where run_at is not null and run_at < 'infinity'
             and sink <> all(array(select name from relay.sinks where resharding))),
         (select min(retry_at) from relay.stuck_keys
           where retry_at is not null and sink <> all(array(select name from relay.sinks where resharding)))
       ) - now())::float8
