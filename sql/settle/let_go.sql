-- Let these waiting messages of locked keys go; a key of which none waits is no longer stuck. (A subquery, as so many
-- places in sight would make the planner read all of a small table.)
-- Where they are a probe of a destination they bear its name.
-- It is looked at again when the last of them is settled. Only where somebody removes that one by hand it takes long.
with next as (
  update relay.outbox
     set run_at = null, due_at = coalesce(due_at, created_at), destination = %(destination)s::text
   where ctid = any(array(select unnest(%(places)s::tid[])))
  returning id, sink, key
), last as (
  select sink, key, relay.hash_of(key, null) as key_hash, max(id) as id from next group by sink, key
), moved as (
  update relay.stuck_keys k
     set upto = last.id, retry_at = clock_timestamp() + interval '10 minutes', destination = null
    from last
   where k.sink = last.sink and k.key_hash = last.key_hash and k.key = last.key
)
delete from relay.stuck_keys k
 using unnest(%(sinks)s::text[], %(hashes)s::bigint[], %(digests)s::bytea[]) as locked (sink, key_hash, key_digest)
 where k.sink = locked.sink and k.key_hash = locked.key_hash and k.key_digest = locked.key_digest
   and not exists (select from last where last.sink = k.sink and last.key_hash = k.key_hash and last.key = k.key)
