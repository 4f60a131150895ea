-- Let the next waiting messages of a key go, lowest id first; where none waits the key is no longer stuck. Should what
-- was let go never be settled, the key is looked at again after a minute.
with next as (
  update relay.outbox
     set run_at = null
   where ctid = any(array(
           select ctid from relay.outbox
            where sink = %(sink)s and shard = %(shard)s and relay.hash_of(key, null) = relay.hash_of(%(key)s, null)
              and run_at = 'infinity' and key = %(key)s
            order by id
            limit %(messages)s
              for update))
  returning id
), unstuck as (
  delete from relay.stuck_keys
   where sink = %(sink)s and shard = %(shard)s and key_hash = relay.hash_of(%(key)s, null)
     and not exists (select from next)
), moved as (
  update relay.stuck_keys
     set upto = (select max(id) from next), retry_at = clock_timestamp() + interval '1 minute'
   where sink = %(sink)s and shard = %(shard)s and key_hash = relay.hash_of(%(key)s, null)
     and exists (select from next)
)
select min(id), count(*) from next
