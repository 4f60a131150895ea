-- Without order nothing waits: messages of stuck keys are ready.
update relay.outbox
   set run_at = null, due_at = coalesce(due_at, created_at)
 where ctid = any(array(
         select waiting.place
           from relay.stuck_keys k
          cross join lateral (
                select o.ctid as place
                  from relay.outbox o
                 where o.sink = k.sink and relay.hash_of(o.key, null) = k.key_hash and o.key = k.key
                    and o.run_at = 'infinity'
                 limit %(messages)s) waiting
          where k.sink = %(sink)s
          limit %(messages)s))
   and exists (select from relay.sinks where name = %(sink)s and resharding and shards = 0)
