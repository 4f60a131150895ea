-- Put failed messages back: exponential backoff with full jitter. The exponent is capped before the power is taken.
-- Messages of claimed shards are not marked (mark is null), and their attempt is counted here (uncounted = 1).
update relay.outbox
   set claim_token = null,
       attempts = least(attempts, 2147483646) + %(uncounted)s,
       run_at = clock_timestamp() + make_interval(secs =>
         greatest((%(afters)s::float8[])[array_position(%(ids)s::bigint[], id)],
                  random() * least(%(max)s::float8,
                                   %(base)s::float8 * power(2, greatest(least(attempts + %(uncounted)s - 1, 60), 0))))),
       last_error = (%(reasons)s::text[])[array_position(%(ids)s::bigint[], id)]
 where sink = %(sink)s and shard = any(%(shards)s) and run_at is null
   and id = any(%(ids)s) and claim_token is not distinct from %(mark)s
