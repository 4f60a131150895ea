-- One dead message; what it carries only where a person asked for that.
select id, sink, kind, key, message_id, attempts, error, created_at, died_at, max_attempts, dedupe_key, headers,
       coalesce(prior_tokens, '{}'), coalesce(past_errors, '{}'),
       case when %(payload)s then payload end, case when %(payload)s then body end
  from relay.dead
 where id = %(id)s
