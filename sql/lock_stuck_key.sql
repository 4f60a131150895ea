-- A blocked key (no retry_at) goes on only when a person says so.
select key from relay.stuck_keys
 where sink = %(sink)s and shard = %(shard)s and key_hash = relay.hash_of(%(key)s, null) and retry_at is not null
   for update
