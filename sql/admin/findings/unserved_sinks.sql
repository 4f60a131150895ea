-- Sinks that no relay serves while relays run. (Where none runs, that is said once, and not here.) A relay of an
-- earlier release does not say what it serves.
select format('sink "%s": no relay serves it%s', s.name,
              coalesce(': ' || (select string_agg(distinct format('%s: %s', v.host, v.waits), '; ')
                                  from relay.serving v where v.sink = s.name),
                       '; add it to the configuration of a relay, or remove it by relay apply'))
  from relay.sinks s
 where s.paused_at is null
   and exists (select from relay.live_relays)
   and not exists (select from relay.live_relays r where r.sinks is null)
   and not exists (select from relay.serving v where v.sink = s.name and v.waits is null)
 order by s.name
