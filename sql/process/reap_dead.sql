-- Messages whose last attempt died with its relay.
with gone as (
  delete from relay.outbox o
   where o.ctid = any(%(places)s)
     and o.attempts >= coalesce(o.max_attempts, (select s.max_attempts from relay.sinks s where s.name = %(sink)s), 20)
  returning *
)
insert into relay.dead (id, sink, shard, kind, key, payload, body, headers, message_id, attempts, max_attempts,
                        dedupe_key, prior_tokens, error, past_errors, created_at)
select coalesce((select nextval('relay.outbox_id_seq') from relay.dead d where d.id = gone.id), id),
       sink, shard, kind, key, payload, body, headers, message_id, attempts, max_attempts, dedupe_key,
       array_append(prior_tokens, claim_token),
       'its last attempt was not finished: the relay that held it was gone for longer than the lease', past_errors,
       created_at
  from gone
