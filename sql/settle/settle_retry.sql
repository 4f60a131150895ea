-- Put failed messages back: exponential backoff with full jitter. The exponent is capped before the power is taken.
-- The attempt of messages of claimed shards is counted here (uncounted = 1). (places: from lock_rows.sql.)
-- Where they may have been delivered all the same, the claim's token is kept.
update relay.outbox
   set claim_token = null,
       destination = null,
       attempts = least(attempts, 2147483647 - %(uncounted)s) + %(uncounted)s,
       run_at = clock_timestamp() + make_interval(secs =>
         greatest((%(afters)s::float8[])[array_position(%(ids)s::bigint[], id)],
                  random() * least(%(max)s::float8,
                                   %(base)s::float8 * power(2, greatest(least(attempts + %(uncounted)s - 1, 60), 0))))),
       prior_tokens = relay.add_token(prior_tokens, %(kept)s::uuid),
       past_errors = relay.remember(past_errors, last_error, (%(reasons)s::text[])[array_position(%(ids)s::bigint[], id)],
                                    attempts - 1 + %(uncounted)s),
       last_error = (%(reasons)s::text[])[array_position(%(ids)s::bigint[], id)]
 where ctid = any(%(places)s)
