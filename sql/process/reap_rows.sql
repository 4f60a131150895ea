-- Free exactly the messages of a claim that ran out. Nobody learnt what became of them, so the token is kept.
-- (places, uncounted: as in settle_retry.sql.)
update relay.outbox
   set claim_token = null,
       attempts = least(attempts, 2147483647 - %(uncounted)s) + %(uncounted)s,
       prior_tokens = array_append(prior_tokens, %(token)s::uuid)
 where ctid = any(%(places)s)
