-- A part of the messages without a route, and whether one matches by now.
select o.ctid::text, o.id, o.dedupe_key is not null,
       exists (select from relay.routes r
                where o.kind like r.kind_like
                  and relay.bucket_of(o.key, o.dedupe_key, o.message_id) >= r.lo
                  and relay.bucket_of(o.key, o.dedupe_key, o.message_id) < r.hi)
  from relay.outbox o
 where o.sink = 'unrouted' and o.shard = 0 and o.run_at is null and o.id > %(after)s
 order by o.id
 limit %(messages)s
