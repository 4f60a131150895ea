-- The next waiting messages of locked keys, in each the lowest ids, held where they are until the transaction ends. By a
-- statement of its own: an update would pass by what somebody changes at that moment.
select waiting.place
  from unnest(%(sinks)s::text[], %(hashes)s::bigint[]) as stuck (sink, key_hash)
 cross join lateral (
       select o.ctid as place
         from relay.outbox o
        where o.sink = stuck.sink and relay.hash_of(o.key, null) = stuck.key_hash and o.run_at = 'infinity'
        order by o.id
        limit %(messages)s
          for update) waiting
