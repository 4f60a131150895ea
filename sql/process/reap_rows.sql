-- Free exactly the messages of a claim that ran out. Nobody learnt what became of them, so the token is kept, and the death
-- is counted. One without attempts left is found when it is claimed: only then the broker can be asked about it, and of an
-- ordered sink its key must be settled with it. (places, uncounted: as in settle_retry.sql.)
update relay.outbox
   set claim_token = null,
       attempts = least(attempts, 2147483647 - %(uncounted)s) + %(uncounted)s,
       deaths = least(coalesce(deaths, 0), 32766) + 1,
       prior_tokens = relay.add_token(prior_tokens, %(token)s::uuid),
       past_errors = relay.remember(past_errors, last_error, %(reason)s, attempts - 1 + %(uncounted)s),
       last_error = %(reason)s
 where ctid = any(%(places)s)
