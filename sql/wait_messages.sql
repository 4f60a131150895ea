-- Messages that wait for an earlier one of their key leave the ready index.
update relay.outbox
   set run_at = 'infinity',
       attempts = least(attempts, 2147483646) + %(count)s,
       last_error = coalesce((%(reasons)s::text[])[array_position(%(ids)s::bigint[], id)], last_error)
 where sink = %(sink)s and shard = any(%(shards)s) and run_at is null and id = any(%(ids)s)
