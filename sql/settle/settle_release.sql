-- Give messages back that could not be tried: the attempt does not count. Where their outcome is unknown the token is
-- kept, so that the next sender can ask the broker about it. Where they may have made the sink crash, that is counted as a
-- death of their claim. (places, uncounted: as in settle_retry.sql.)
update relay.outbox
   set claim_token = null,
       attempts = greatest(attempts - 1 + %(uncounted)s, 0),
       run_at = clock_timestamp() + make_interval(secs => nullif(%(delay)s::float8, 0)),
       deaths = case when %(died)s then least(coalesce(deaths, 0), 32766) + 1 else deaths end,
       prior_tokens = case when %(unknown)s then relay.add_token(prior_tokens, %(token)s::uuid) else prior_tokens end,
       last_error = coalesce(%(reason)s, last_error)
 where ctid = any(%(places)s)
