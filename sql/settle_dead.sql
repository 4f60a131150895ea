-- Give messages up: they leave the queue and wait for a person. (places, uncounted: as in settle_retry.sql.)
with gone as (
  delete from relay.outbox
   where ctid = any(%(places)s)
  returning *
)
insert into relay.dead (id, sink, shard, kind, key, payload, body, headers, message_id, attempts, max_attempts,
                        dedupe_key, prior_tokens, error, past_errors, created_at)
select id, sink, shard, kind, key, payload, body, headers, message_id,
       least(attempts, 2147483646) + %(uncounted)s, max_attempts,
       dedupe_key, prior_tokens, (%(reasons)s::text[])[array_position(%(ids)s::bigint[], id)], past_errors, created_at
  from gone
