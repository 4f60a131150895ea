-- Some messages that wait for a locked destination: the first ones, or, for a probe, from anywhere among them, so that one
-- message for which the destination is never available does not stand for all. By a statement of its own, as lock_waiting.
select o.ctid
  from relay.outbox o
 where o.sink = %(sink)s and o.destination = %(destination)s and o.run_at = 'infinity'
   and o.id >= case when not %(probe)s then 0 else (
         select lowest.id + floor(random() * (highest.id - lowest.id + 1))::bigint
           from (select p.id from relay.outbox p
                  where p.sink = %(sink)s and p.destination = %(destination)s and p.run_at = 'infinity'
                  order by p.id limit 1) lowest
          cross join (select p.id from relay.outbox p
                       where p.sink = %(sink)s and p.destination = %(destination)s and p.run_at = 'infinity'
                       order by p.id desc limit 1) highest) end
 order by o.id
 limit %(messages)s
   for update
