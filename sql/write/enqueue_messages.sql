-- Answers for each message, in order: its message_id, or null where a live message has its dedupe_key. (Types and names as
-- in insert_messages.sql.)
select relay.enqueue(
         kind => m.kind, args => m.payload::pg_catalog.json,
         run_at => coalesce(m.run_at::pg_catalog.timestamptz,
                            pg_catalog.clock_timestamp() operator(pg_catalog.+) pg_catalog.make_interval(secs => m.delay)),
         max_attempts => m.max_attempts, dedupe_key => m.dedupe_key, headers => m.headers::pg_catalog.jsonb, key => m.key,
         sink => m.sink)::pg_catalog.text
  from unnest(%(kind)s::pg_catalog.text[], %(key)s::pg_catalog.text[], %(payload)s::pg_catalog.text[],
              %(headers)s::pg_catalog.text[], %(run_at)s::pg_catalog.text[], %(delay)s::pg_catalog.float8[],
              %(max_attempts)s::pg_catalog.int4[], %(dedupe_key)s::pg_catalog.text[],
              %(sink)s::pg_catalog.text[])
    as m(kind, key, payload, headers, run_at, delay, max_attempts, dedupe_key, sink)
