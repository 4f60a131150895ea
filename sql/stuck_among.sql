-- Which of these keys are stuck, and up to where they may be sent.
select key, upto
  from relay.stuck_keys
 where sink = %(sink)s and shard = any(%(shards)s)
   and key_hash = any(array(select relay.hash_of(k, null) from unnest(%(keys)s::text[]) k))
