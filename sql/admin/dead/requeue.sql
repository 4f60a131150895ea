-- Put dead messages back under their ids, in their order place. The shard is left to the trigger: the sink may have
-- others by now. Where a live message has the dedupe_key the trigger refuses, and the dead one stays what it is. A new
-- generation (again) is another message for every broker: another message_id, and no claim to be asked about.
with batch as (
  select * from relay.dead where id = any(%(ids)s) order by id for update
), moved as (
  insert into relay.outbox (id, sink, kind, key, payload, body, headers, message_id, due_at, max_attempts, dedupe_key,
                            deaths, prior_tokens, last_error, past_errors, created_at)
  overriding system value
  select id, sink, kind, key, payload, body, headers, case when %(again)s then gen_random_uuid() else message_id end,
         clock_timestamp(), max_attempts, dedupe_key, deaths, case when not %(again)s then prior_tokens end, error,
         past_errors || format('%%s, after %%s attempts: %%s',
                               to_char(died_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), attempts, error),
         created_at
    from batch
   order by id
      on conflict do nothing
  returning id
), forgotten as (
  -- What was found out about an earlier life of it is no answer to this one.
  delete from relay.arrived where id in (select id from moved)
), released as (
  -- Whoever puts back the message that blocks its key wants the key to go on.
  update relay.stuck_keys k
     set retry_at = now()
    from batch b
   where k.sink = b.sink and k.key_hash = relay.hash_of(b.key, null) and k.key = b.key
     and k.retry_at is null and b.id > k.upto and b.id in (select id from moved)
), gone as (
  delete from relay.dead where id = any(array(select id from moved)) returning id
)
select (select count(*) from batch), coalesce((select array_agg(id order by id) from gone), '{}')
