-- Parked messages that no destination's row knows, as after a change by hand: from now on they are probed for. From one
-- destination to the next, not message by message.
with recursive held as (
  (select o.sink, o.destination
     from relay.outbox o
    where o.run_at = 'infinity' and o.destination is not null
    order by o.sink, o.destination
    limit 1)
  union all
  select later.sink, later.destination
    from held
   cross join lateral (
         select o.sink, o.destination
           from relay.outbox o
          where o.run_at = 'infinity' and o.destination is not null and (o.sink, o.destination) > (held.sink, held.destination)
          order by o.sink, o.destination
          limit 1) later
)
insert into relay.destinations as d (sink, destination, reason, retry_at)
select sink, destination, 'not known: it is tried', now()
  from held
 where not exists (select from relay.destinations k
                    where k.sink = held.sink and k.destination = held.destination and k.retry_at is not null)
    on conflict (sink, destination) do update set retry_at = coalesce(d.retry_at, excluded.retry_at)
