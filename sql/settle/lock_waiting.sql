-- The next waiting messages of locked keys, in each the lowest ids, held where they are until the transaction ends. By a
-- statement of its own: an update would pass by what somebody changes at that moment.
select waiting.place
  from unnest(%(sinks)s::text[], %(hashes)s::bigint[], %(digests)s::bytea[]) as locked (sink, key_hash, key_digest)
  join relay.stuck_keys k on k.sink = locked.sink and k.key_hash = locked.key_hash and k.key_digest = locked.key_digest
 cross join lateral (
       select o.ctid as place
         from relay.outbox o
        where o.sink = k.sink and relay.hash_of(o.key, null) = k.key_hash and o.key = k.key and o.run_at = 'infinity'
        order by o.id
        limit %(messages)s
          for update) waiting
