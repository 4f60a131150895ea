-- What a message carries, of one that was claimed without it.
select o.payload, o.body, o.headers, o.key
  from relay.outbox o
 where o.sink = %(sink)s and o.shard = %(shard)s and o.run_at is null and o.id = %(id)s
 limit 1
