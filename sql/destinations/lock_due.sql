-- Destinations whose next probe is due, but for those that another relay looks at.
select d.sink, d.destination, d.failures
  from relay.destinations d
 where d.retry_at <= now()
   and d.sink = any(array(select name from relay.sinks where paused_at is null and not resharding))
 order by d.retry_at
 limit %(destinations)s
   for update skip locked
