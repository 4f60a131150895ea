-- As unrouted_ready, for messages that are not due yet. No index has them by sink, so they are asked for at once.
select o.ctid::text, o.dedupe_key is not null
  from relay.outbox o
 where o.sink = 'unrouted' and o.run_at is not null
   and exists (select from relay.routes r
                where o.kind like r.kind_like
                  and relay.bucket_of(o.key, o.dedupe_key, o.message_id) >= r.lo
                  and relay.bucket_of(o.key, o.dedupe_key, o.message_id) < r.hi)
 order by o.id
