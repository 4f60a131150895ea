insert into relay.relays (worker, idle_until, circuits)
values (%(worker)s, clock_timestamp() + make_interval(secs => %(idle_for)s), %(circuits)s)
on conflict (worker) do update
   set seen_at = clock_timestamp(), idle_until = excluded.idle_until, circuits = excluded.circuits
