-- Unless somebody else has begun to reshard it to another number meanwhile. A key of which messages wait all the same
-- stays: they are let go when its time has come.
with unstuck as (
  delete from relay.stuck_keys k
   where k.sink = %(sink)s and %(shards)s = 0
     and not exists (select from relay.outbox o
                      where o.sink = k.sink and relay.hash_of(o.key, null) = k.key_hash and o.run_at = 'infinity')
)
update relay.sinks set resharding = false where name = %(sink)s and resharding and shards = %(shards)s
