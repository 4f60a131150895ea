-- A page of stuck keys, and how many messages of each wait. Those that wait for a person, or all.
select k.sink, convert_to(k.key, getdatabaseencoding()), k.key_hash, k.key_digest, k.upto, k.retry_at, k.reason, k.since,
       (select count(*) from relay.outbox o
         where o.sink = k.sink and relay.hash_of(o.key, null) = k.key_hash and o.key = k.key and o.run_at = 'infinity')
  from relay.stuck_keys k
 where (k.sink, k.key_hash, k.key_digest) > (%(after_sink)s, %(after_hash)s, %(after_digest)s)
   and (%(sink)s::text is null or k.sink = %(sink)s)
   and (%(everything)s or k.retry_at is null)
 order by k.sink, k.key_hash, k.key_digest
 limit %(keys)s
