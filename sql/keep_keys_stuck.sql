-- More messages of stuck keys were met: should a key have been let go meanwhile, it is stuck again, and due at once.
insert into relay.stuck_keys as stuck (sink, shard, key_hash, key, upto, retry_at)
select %(sink)s, t.shard, relay.hash_of(t.key, null), t.key, t.first - 1, now()
  from unnest(%(key_shards)s::smallint[], %(keys)s::text[], %(firsts)s::bigint[]) as t (shard, key, first)
    on conflict (sink, shard, key_hash) do update
   set upto = least(stuck.upto, excluded.upto)
