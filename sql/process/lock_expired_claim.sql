select token, sink, shards, counts, worker, ids
  from relay.claims
 where locked_until < now()
 order by locked_until
 limit 1
   for update skip locked
