-- The bytes of what a message carries, as they would be sent here.
select coalesce(octet_length(o.body), octet_length(o.payload::text)) + coalesce(octet_length(o.headers::text), 0)
       + coalesce(octet_length(o.key), 0)
  from relay.outbox o
 where o.sink = %(sink)s and o.shard = %(shard)s and o.run_at is null and o.id = %(id)s
 limit 1
