-- Unless somebody else has begun to reshard it to another number meanwhile, or a message is in a wrong shard all the same:
-- who rewrites the table (VACUUM FULL, pg_repack) or changes a row by hand puts it where the pages were looked at already.
-- One statement sees all of the table at one moment. A key of which messages wait all the same stays: they are let go
-- when its time has come. Answers whether it ended, and whether messages are to be moved again.
with ours as (
  select s.shards from relay.sinks s where s.name = %(sink)s and s.resharding and s.shards = %(shards)s
), misplaced as (
  select exists (select from relay.outbox o cross join ours
                  where o.sink = %(sink)s
                    and o.shard <> coalesce(abs((relay.hash_of(o.key, o.message_id) >> 32) %% nullif(ours.shards, 0)), 0))
      or exists (select from relay.dead d cross join ours
                  where d.sink = %(sink)s
                    and d.shard <> coalesce(abs((relay.hash_of(d.key, d.message_id) >> 32) %% nullif(ours.shards, 0)), 0))
         as found
), unstuck as (
  delete from relay.stuck_keys k
   using misplaced
   where k.sink = %(sink)s and %(shards)s = 0 and not misplaced.found
     and not exists (select from relay.outbox o
                      where o.sink = k.sink and relay.hash_of(o.key, null) = k.key_hash and o.key = k.key
                        and o.run_at = 'infinity')
), ended as (
  update relay.sinks s set resharding = false
    from misplaced
   where s.name = %(sink)s and s.resharding and s.shards = %(shards)s and not misplaced.found
  returning s.name
)
select exists (select from ended), (select found from misplaced)
