-- Messages without a route that have one by now: where they are, page by page.
select o.ctid::text, o.id
  from relay.outbox o
 where o.sink = 'unrouted' and o.shard = 0 and o.run_at is null and o.id > %(after)s
   and exists (select from relay.routes r
                where o.kind like r.kind_like
                  and abs(relay.hash_of(o.key, o.message_id) %% 100) >= r.lo
                  and abs(relay.hash_of(o.key, o.message_id) %% 100) < r.hi)
 order by o.id
 limit %(messages)s
