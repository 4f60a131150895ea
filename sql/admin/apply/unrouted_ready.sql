-- Messages without a route that have one by now: where they are, page by page.
select o.ctid::text, o.dedupe_key is not null, o.id
  from relay.outbox o
 where o.sink = 'unrouted' and o.shard = 0 and o.run_at is null and o.id > %(after)s
   and exists (select from relay.routes r
                where o.kind like r.kind_like
                  and relay.bucket_of(o.key, o.dedupe_key, o.message_id) >= r.lo
                  and relay.bucket_of(o.key, o.dedupe_key, o.message_id) < r.hi)
 order by o.id
 limit %(messages)s
