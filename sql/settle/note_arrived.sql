-- Keep a trace of messages that were not sent again, because the broker had them already.
with old as (
  delete from relay.arrived where found_at < now() - interval '1 day'
)
insert into relay.arrived (id, sink, message_id)
select id, %(sink)s, message_id from unnest(%(ids)s::bigint[], %(message_ids)s::uuid[]) as found (id, message_id)
    on conflict (id) do update set message_id = excluded.message_id, sink = excluded.sink, found_at = excluded.found_at
