-- Answers for each message, in order: its message_id, or null where a live message has its dedupe_key.
select relay.enqueue(
         kind => m.kind, args => m.payload::json,
         run_at => coalesce(m.run_at::timestamptz, clock_timestamp() + make_interval(secs => m.delay)),
         max_attempts => m.max_attempts, dedupe_key => m.dedupe_key, headers => m.headers::jsonb, key => m.key,
         sink => m.sink)::text
  from unnest(%(kind)s::text[], %(key)s::text[], %(payload)s::text[], %(headers)s::text[], %(run_at)s::text[],
              %(delay)s::float8[], %(max_attempts)s::int[], %(dedupe_key)s::text[], %(sink)s::text[])
    as m(kind, key, payload, headers, run_at, delay, max_attempts, dedupe_key, sink)
