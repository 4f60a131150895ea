-- A part of the messages without a route, and whether one matches by now.
select o.ctid::text, o.id,
       exists (select from relay.routes r
                where o.kind like r.kind_like
                  and abs(relay.hash_of(o.key, o.message_id) %% 100) >= r.lo
                  and abs(relay.hash_of(o.key, o.message_id) %% 100) < r.hi)
  from relay.outbox o
 where o.sink = 'unrouted' and o.shard = 0 and o.run_at is null and o.id > %(after)s
 order by o.id
 limit %(messages)s
