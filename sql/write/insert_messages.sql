-- Needs INSERT and nothing else: no SELECT, no RETURNING. Everything comes as text, numbers and bytes, so that no codec
-- which an application has set for json, uuid or timestamptz can get at it.
insert into relay.outbox (kind, key, payload, body, headers, message_id, run_at, max_attempts, sink)
select m.kind, m.key, m.payload::json, m.body, m.headers::jsonb, m.message_id::uuid,
       coalesce(m.run_at::timestamptz, clock_timestamp() + make_interval(secs => m.delay)), m.max_attempts, m.sink
  from unnest(%(kind)s::text[], %(key)s::text[], %(payload)s::text[], %(body)s::bytea[], %(headers)s::text[],
              %(message_id)s::text[], %(run_at)s::text[], %(delay)s::float8[], %(max_attempts)s::int[],
              %(sink)s::text[])
    as m(kind, key, payload, body, headers, message_id, run_at, delay, max_attempts, sink)
