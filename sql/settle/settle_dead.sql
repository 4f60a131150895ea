-- Give messages up: they leave the queue and wait for a person. (places, uncounted, kept: as in settle_retry.sql.) An id
-- can come again, after a fail-over to a logical replica: that message gets a new one here. What was not tried any more
-- has no attempt of this claim.
with gone as (
  delete from relay.outbox
   where ctid = any(%(places)s)
  returning *, (%(reasons)s::text[])[array_position(%(ids)s::bigint[], id)] as reason,
            attempts::bigint - 1 + %(uncounted)s as before
)
insert into relay.dead (id, sink, shard, kind, key, payload, body, headers, message_id, attempts, max_attempts,
                        dedupe_key, deaths, prior_tokens, error, past_errors, created_at)
select coalesce((select nextval('relay.outbox_id_seq') from relay.dead d where d.id = gone.id), id),
       sink, shard, kind, key, payload, body, headers, message_id,
       least(before + case when id = any(%(untried)s::bigint[]) then 0 else 1 end, 2147483647), max_attempts,
       dedupe_key, deaths, relay.add_token(prior_tokens, %(kept)s::uuid), reason,
       relay.remember(past_errors, last_error, reason, before::integer), created_at
  from gone
