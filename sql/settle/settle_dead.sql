-- Give messages up: they leave the queue and wait for a person. (places, uncounted, kept: as in settle_retry.sql.) An id
-- can come again, after a fail-over to a logical replica: that message gets a new one here.
with gone as (
  delete from relay.outbox
   where ctid = any(%(places)s)
  returning *
)
insert into relay.dead (id, sink, shard, kind, key, payload, body, headers, message_id, attempts, max_attempts,
                        dedupe_key, prior_tokens, error, past_errors, created_at)
select coalesce((select nextval('relay.outbox_id_seq') from relay.dead d where d.id = gone.id), id),
       sink, shard, kind, key, payload, body, headers, message_id,
       least(attempts, 2147483647 - %(uncounted)s) + %(uncounted)s, max_attempts,
       dedupe_key,
       case when %(kept)s::uuid is null then prior_tokens else array_append(prior_tokens, %(kept)s::uuid) end,
       (%(reasons)s::text[])[array_position(%(ids)s::bigint[], id)], past_errors, created_at
  from gone
