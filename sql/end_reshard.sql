-- Unless somebody else has begun to reshard it to another number meanwhile.
with unstuck as (
  delete from relay.stuck_keys where sink = %(sink)s and %(shards)s = 0
)
update relay.sinks set resharding = false where name = %(sink)s and resharding and shards = %(shards)s
