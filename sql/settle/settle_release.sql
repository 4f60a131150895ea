-- Give messages back that could not be tried: the attempt does not count. Where their outcome is unknown the token is
-- kept, so that the next sender can ask the broker about it. (places, uncounted: as in settle_retry.sql.)
update relay.outbox
   set claim_token = null,
       attempts = greatest(attempts - 1 + %(uncounted)s, 0),
       run_at = clock_timestamp() + make_interval(secs => nullif(%(delay)s::float8, 0)),
       prior_tokens = case when %(unknown)s then array_append(prior_tokens, %(token)s::uuid) else prior_tokens end,
       last_error = coalesce(%(reason)s, last_error)
 where ctid = any(%(places)s)
