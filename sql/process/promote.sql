-- Make scheduled messages ready whose time has come. now() and not clock_timestamp(): only that can use the index.
update relay.outbox
   set due_at = run_at, run_at = null
 where ctid = any(array(
         select ctid from relay.outbox
          where run_at <= now() and run_at < 'infinity' and sink <> all(array(select name from relay.sinks where resharding))
          order by run_at
          limit %(messages)s
            for update skip locked))
