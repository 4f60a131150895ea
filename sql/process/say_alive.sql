-- Answers since when each sink is delivered where it is now: "since" stays as long as the destination does.
with said as (
  insert into relay.relays as r (worker, host, version, backend_pid, idle_until, circuits, sinks)
  select %(worker)s, %(host)s, %(version)s, %(backend_pid)s,
         clock_timestamp() + make_interval(secs => %(idle_for)s), %(circuits)s,
         (select coalesce(jsonb_object_agg(n.name, n.said || jsonb_build_object('since',
                   case when before.sinks -> n.name -> 'destination' = n.said -> 'destination'
                        then before.sinks -> n.name -> 'since'
                        else to_jsonb(extract(epoch from clock_timestamp())::float8) end)), '{}')
            from jsonb_each(%(sinks)s::jsonb) as n (name, said)
            left join relay.relays before on before.worker = %(worker)s)
  on conflict (worker) do update
     set seen_at = clock_timestamp(), idle_until = excluded.idle_until, circuits = excluded.circuits,
         sinks = excluded.sinks, backend_pid = excluded.backend_pid
  returning r.sinks
)
select s.name, (s.said ->> 'since')::float8
  from said
 cross join lateral jsonb_each(said.sinks) as s (name, said)
