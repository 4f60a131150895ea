-- Needs INSERT and nothing else: no SELECT, no RETURNING. Everything comes as text, numbers and bytes, so that no codec
-- which an application has set for json, uuid or timestamptz can get at it. It runs in the application's session, with its
-- search_path: so functions, operators and types say pg_catalog. (Of several arrays unnest is PostgreSQL's own anyway.)
insert into relay.outbox (kind, key, payload, body, headers, message_id, run_at, max_attempts, sink)
select m.kind, m.key, m.payload::pg_catalog.json, m.body, m.headers::pg_catalog.jsonb, m.message_id::pg_catalog.uuid,
       coalesce(m.run_at::pg_catalog.timestamptz,
                pg_catalog.clock_timestamp() operator(pg_catalog.+) pg_catalog.make_interval(secs => m.delay)),
       m.max_attempts, m.sink
  from unnest(%(kind)s::pg_catalog.text[], %(key)s::pg_catalog.text[], %(payload)s::pg_catalog.text[],
              %(body)s::pg_catalog.bytea[], %(headers)s::pg_catalog.text[], %(message_id)s::pg_catalog.text[],
              %(run_at)s::pg_catalog.text[], %(delay)s::pg_catalog.float8[],
              %(max_attempts)s::pg_catalog.int4[], %(sink)s::pg_catalog.text[])
    as m(kind, key, payload, body, headers, message_id, run_at, delay, max_attempts, sink)
