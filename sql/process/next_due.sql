-- Seconds until the next scheduled message is due, or the next stuck key, or the next probe of an unavailable destination;
-- and those destinations: sink, name, reason, probes that failed, whether the sink's circuit probes it. One statement, as
-- idle relays ask once a second.
select extract(epoch from least(
         (select min(run_at) from relay.outbox
           where run_at is not null and run_at < 'infinity'
             and sink <> all(array(select name from relay.sinks where resharding))),
         (select min(retry_at) from relay.stuck_keys
           where retry_at is not null and sink <> all(array(select name from relay.sinks where resharding))),
         (select min(retry_at) from relay.destinations
           where sink = any(array(select name from relay.sinks where paused_at is null and not resharding)))
       ) - now())::float8,
       (select json_agg(json_build_array(sink, destination, reason, failures, retry_at is null)) from relay.destinations)
