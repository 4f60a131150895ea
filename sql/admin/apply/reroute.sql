-- Write messages anew, under their own ids and without a sink, so that the trigger finds it. One that the trigger
-- refuses, because its sink has a live message with its dedupe_key, stays where it is.
with batch as (
  select o.ctid as place, o.*
    from relay.outbox o
   where o.ctid = any(%(places)s::tid[]) and o.sink = 'unrouted'
     for update
), moved as (
  insert into relay.outbox (id, kind, key, payload, body, headers, message_id, run_at, due_at, attempts, max_attempts,
                            dedupe_key, prior_tokens, last_error, past_errors, created_at)
  overriding system value
  select id, kind, key, payload, body, headers, message_id, run_at, coalesce(due_at, created_at), attempts, max_attempts,
         dedupe_key, prior_tokens, last_error, past_errors, created_at
    from batch
   order by id
      on conflict do nothing
  returning id, sink
), gone as (
  delete from relay.outbox where ctid = any(array(select place from batch where id in (select id from moved)))
)
select count(*) from moved where sink <> 'unrouted'
