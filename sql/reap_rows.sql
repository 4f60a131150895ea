-- Free exactly the messages of a claim that ran out. Nobody learnt what became of them, so the token is kept.
update relay.outbox
   set claim_token = null,
       prior_tokens = array_append(prior_tokens, claim_token)
 where sink = %(sink)s and shard = any(%(shards)s) and run_at is null
   and id = any(%(ids)s) and claim_token = %(token)s
