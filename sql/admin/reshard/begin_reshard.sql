-- From now on nothing of the sink is claimed, and the trigger is compiled for the new number of shards.
update relay.sinks s
   set shards = %(shards)s, resharding = true
  from (select name, shards from relay.sinks where name = %(sink)s for update) old
 where s.name = old.name
returning old.shards
