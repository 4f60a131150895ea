-- Of these keys the stuck ones, unless they are blocked. What waits for them must be read by a later statement: until
-- the row is locked, others may add to it.
select sink, key_hash, key_digest
  from relay.stuck_keys
 where sink = %(sink)s and retry_at is not null
   and key_hash = any(array(select relay.hash_of(k, null) from unnest(%(keys)s::text[]) k))
   and key = any(%(keys)s::text[])
 order by key_hash, key_digest
   for update
