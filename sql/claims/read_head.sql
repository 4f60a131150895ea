-- What a message is and whose turn it is, of one that was claimed without its data. A key that is too long is left out.
select o.kind, coalesce(octet_length(o.key), 0), case when octet_length(o.key) <= %(longest)s then o.key end
  from relay.outbox o
 where o.sink = %(sink)s and o.shard = %(shard)s and o.run_at is null and o.id = %(id)s
 limit 1
